#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/kernels/muon.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr int kNormParts = 64;   // of a matrix, each summed by a block
constexpr Index kSettings = 16;  // in the arguments of a launch

/// Calls use(x, i) for the elements of this block's chunk.
template <class Use>
__device__ void for_each_of_chunk(const StepTensors& all, Use&& use) {
  const StepChunk chunk = all.chunks[blockIdx.x];
  const StepTensor x = all.tensors[chunk.tensor];
  const Index from = chunk.part * kStepChunk, to = from + kStepChunk < x.count ? from + kStepChunk : x.count;
  for (Index i = from + threadIdx.x; i < to; i += blockDim.x) use(x, i);
}

template <class T>
__global__ void momentum_kernel(StepTensors all, T keep, bool nesterov, const double* factor) {
  if (isnan(*factor)) return;
  const T scale = static_cast<T>(*factor);
  for_each_of_chunk(all, [&](const StepTensor& x, Index i) {
    T* moment = static_cast<T*>(x.state1);
    const T g = static_cast<const T*>(x.gradient)[i] * scale, m = g + keep * (moment[i] - g);
    moment[i] = m;
    static_cast<T*>(x.state2)[i] = nesterov ? g + keep * (m - g) : m;
  });
}

/// The elements of a matrix that this block has.
struct NormPart {
  Index from, to;
};
__device__ NormPart own_part(Index elements) {
  const Index part = blockIdx.x % kNormParts, first = blockIdx.x / kNormParts * elements;
  return {first + elements * part / kNormParts, first + elements * (part + 1) / kNormParts};
}

/// The sums of squares of the parts of each matrix.
template <class T>
__global__ void square_sums_kernel(Index elements, const T* x, double* sums) {
  const NormPart own = own_part(elements);
  double sum = 0;
  for (Index i = own.from + threadIdx.x; i < own.to; i += kBlock)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/// y = x / max(|x|, epsilon) of each matrix, from the sums of squares of its parts.
template <class T, class N>
__global__ void normalize_kernel(Index elements, double epsilon, const T* x, const double* sums, N* y) {
  const NormPart own = own_part(elements);
  double sum = 0;
  for (int part = 0; part < kNormParts; ++part) sum += sums[blockIdx.x / kNormParts * kNormParts + part];
  const double norm = sqrt(sum);
  const T divisor = static_cast<T>(norm > epsilon ? norm : epsilon);
  for (Index i = own.from + threadIdx.x; i < own.to; i += kBlock) y[i] = static_cast<N>(x[i] / divisor);
}

/// y = y + b x + a I for `count` matrices, one after the other.
template <class N>
__global__ void polynomial_kernel(Index count, Index side, Wide<N> a, Wide<N> b, const N* x, N* y) {
  for_each_index(count * side * side, [&](Index i) {
    const Index in_matrix = divide(i, side * side).remainder;
    const Division at = divide(in_matrix, side);
    const Wide<N> value = static_cast<Wide<N>>(y[i]) + b * static_cast<Wide<N>>(x[i]);
    y[i] = static_cast<N>(at.quotient == at.remainder ? value + a : value);
  });
}

/// Several settings, from `first` on; a launch handles matrices with these.
struct MuonSteps {
  MuonStep of[kSettings];
  Index first;
};

template <class T>
__global__ void step_kernel(StepTensors all, MuonSteps steps, const double* factor) {
  if (isnan(*factor)) return;
  for_each_of_chunk(all, [&](const StepTensor& x, Index i) {
    if (x.setting < steps.first || x.setting >= steps.first + kSettings) return;
    const MuonStep& step = steps.of[x.setting - steps.first];
    const T u = static_cast<const T*>(x.state2)[i];
    T* value = static_cast<T*>(x.value);
    value[i] = value[i] * static_cast<T>(1 - step.weight_decay) - static_cast<T>(step.learning_rate) * u;
    if (x.shadow != nullptr) x.shadow[i] = BFloat16(value[i]);
  });
}

/// A product for each of the `count` matrices, which have no gaps.
template <class N, class C>
void multiply(Cuda on, Index count, Index m, Index n, Index k, const N* a, bool transpose_a, const N* b,
              bool transpose_b, double scale, C* c) {
  Gemm s = dense_gemm(m, n, k, transpose_a, transpose_b);
  s.scale = scale;
  s.batch = {1, {count}, {m * k}, {k * n}, {m * n}};
  gemm(on, s, a, b, Write<C>{c, false});
}

/// newton_schulz() with products of the type N.
template <class N, class T>
void orthogonalize(Cuda on, const NewtonSchulz& s, T* x) {
  const bool is_wide = s.rows <= s.columns;
  const Index elements = s.rows * s.columns, side = std::min(s.rows, s.columns);
  const Scratch<N> one(on, s.count * elements), two(on, s.count * elements), gram(on, s.count * side * side),
      polynomial(on, s.count * side * side);
  N *from = one.data(), *to = two.data();
  const Scratch<double> sums(on, s.count * kNormParts);
  launch(on, "square_sums", square_sums_kernel<T>, s.count * kNormParts, elements, x, sums.data());
  launch(on, "normalize", normalize_kernel<T, N>, s.count * kNormParts, elements, s.epsilon, x, sums.data(),
         from);
  const auto product = [&](auto* result) {
    if (is_wide) {
      multiply(on, s.count, side, s.columns, side, polynomial.data(), false, from, false, 1, result);
    } else {
      multiply(on, s.count, s.rows, side, side, from, false, polynomial.data(), false, 1, result);
    }
  };
  for (int step = 1; step <= s.steps; ++step) {
    multiply(on, s.count, side, side, is_wide ? s.columns : s.rows, from, !is_wide, from, is_wide, 1,
             gram.data());
    multiply(on, s.count, side, side, side, gram.data(), false, gram.data(), false, kQuintic[2],
             polynomial.data());
    launch(on, "polynomial", polynomial_kernel<N>, blocks_for(s.count * side * side), s.count, side,
           kQuintic[0], kQuintic[1], gram.data(), polynomial.data());
    step == s.steps ? product(x) : product(to);
    std::swap(from, to);
  }
}

}  // namespace

template <class T>
void muon_momentum(Cuda on, const StepTensors& all, double momentum, bool nesterov, const double* factor) {
  launch(on, "muon_momentum", momentum_kernel<T>, all.chunk_count, all, momentum, nesterov, factor);
}

template <class T>
void newton_schulz(Cuda on, const NewtonSchulz& s, T* x) {
  if (s.count * s.rows * s.columns == 0) return;
  if constexpr (std::is_same_v<T, float>) {
    if (s.narrow) return orthogonalize<BFloat16>(on, s, x);
  }
  orthogonalize<T>(on, s, x);
}

template <class T>
void muon_step(Cuda on, const StepTensors& all, const MuonStep* steps, Index step_count,
               const double* factor) {
  for (Index first = 0; first < step_count; first += kSettings) {
    MuonSteps some{};
    some.first = first;
    std::copy(steps + first, steps + std::min(step_count, first + kSettings), some.of);
    launch(on, "muon_step", step_kernel<T>, all.chunk_count, all, some, factor);
  }
}

TAPEFORMER_WIDE_KERNEL(Cuda, muon_momentum);
TAPEFORMER_WIDE_KERNEL(Cuda, newton_schulz);
TAPEFORMER_WIDE_KERNEL(Cuda, muon_step);

}  // namespace tapeformer::kernels
