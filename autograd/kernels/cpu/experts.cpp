#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/experts.h>
#include <tapeformer/autograd/kernels/matmul.h>

#include <algorithm>
#include <numeric>

namespace tapeformer::kernels {

template <class T>
void choose_experts(Cpu, const ExpertSizes& sizes, const T* scores, std::int32_t* places) {
  parallel_ranges(sizes.tokens, 2 * sizes.experts, [&](Index from, Index to) {
    for (Index token = from; token < to; ++token) choose_for_token(sizes, token, scores, places);
  });
}

template <class T>
void sort_by_expert(Cpu, const ExpertSizes& sizes, const std::int32_t* places, std::int32_t* rows,
                    std::int32_t* tokens, std::int32_t* starts, T* shares) {
  const auto expert_of = [&](Index choice) { return places[choice] % sizes.experts; };
  std::fill_n(starts, sizes.experts + 1, 0);
  for (Index i = 0; i < sizes.choices(); ++i) ++starts[expert_of(i) + 1];
  for (Index e = 0; e < sizes.experts; ++e)
    shares[e] = sizes.tokens > 0 ? static_cast<T>(starts[e + 1]) / static_cast<T>(sizes.choices()) : T(0);
  std::partial_sum(starts, starts + sizes.experts + 1, starts);
  for (Index i = 0; i < sizes.choices(); ++i) {
    rows[i] = starts[expert_of(i)]++;
    tokens[rows[i]] = static_cast<std::int32_t>(i / sizes.active);
  }
  for (Index e = sizes.experts; e > 0; --e) starts[e] = starts[e - 1];  // starts have become ends
  starts[0] = 0;
}

template <class T>
void multiply_by_expert(Cpu on, const ExpertProducts& s, const std::int32_t* starts, const T* x, const T* w,
                        Write<T> y) {
  for (Index e = 0; e < s.experts; ++e) {
    const Index first = starts[e], rows = starts[e + 1] - first;
    if (rows > 0)
      gemm(on, dense_gemm(rows, s.n, s.k, false, s.transposed), x + first * s.k, w + e * s.n * s.k,
           {y.to + first * s.n, y.add});
  }
}

template <class T>
void outer_by_expert(Cpu on, const ExpertProducts& s, const std::int32_t* starts, const T* a, const T* b,
                     Write<Wide<T>> c) {
  for (Index e = 0; e < s.experts; ++e) {
    const Index first = starts[e];
    gemm(on, dense_gemm(s.k, s.n, starts[e + 1] - first, true, false), a + first * s.k, b + first * s.n,
         {c.to + e * s.n * s.k, c.add});
  }
}

TAPEFORMER_CPU_KERNEL(choose_experts);
TAPEFORMER_CPU_KERNEL(sort_by_expert);
TAPEFORMER_CPU_KERNEL(multiply_by_expert);
TAPEFORMER_CPU_KERNEL(outer_by_expert);

}  // namespace tapeformer::kernels
