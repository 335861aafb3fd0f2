#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/cuda/sort.h>
#include <tapeformer/autograd/kernels/experts.h>

namespace tapeformer::kernels {
namespace {

template <class T>
__global__ void choose_experts_kernel(ExpertSizes sizes, const T* scores, std::int32_t* places) {
  for_each_index(sizes.tokens, [&](Index token) { choose_for_token(sizes, token, scores, places); });
}

__global__ void expert_keys_kernel(ExpertSizes sizes, const std::int32_t* places, std::int32_t* keys) {
  for_each_index(sizes.choices(),
                 [&](Index i) { keys[i] = static_cast<std::int32_t>(places[i] % sizes.experts); });
}

/// Fills rows, tokens and starts from the sorted choices: `keys` are their experts, `choices` their numbers.
__global__ void place_choices_kernel(ExpertSizes sizes, const std::int32_t* keys, const std::int32_t* choices,
                                     std::int32_t* rows, std::int32_t* tokens, std::int32_t* starts) {
  for_each_index(sizes.choices() + 1, [&](Index row) {
    const bool is_end = row == sizes.choices();
    const Index before = row == 0 ? -1 : keys[row - 1], own = is_end ? sizes.experts : keys[row];
    for (Index e = before + 1; e <= own; ++e) starts[e] = static_cast<std::int32_t>(row);
    if (is_end) return;
    rows[choices[row]] = static_cast<std::int32_t>(row);
    tokens[row] = static_cast<std::int32_t>(choices[row] / sizes.active);
  });
}

template <class T>
__global__ void expert_shares_kernel(ExpertSizes sizes, const std::int32_t* starts, T* shares) {
  const auto all = static_cast<T>(sizes.choices());
  for_each_index(sizes.experts, [&](Index e) {
    shares[e] = sizes.tokens > 0 ? static_cast<T>(starts[e + 1] - starts[e]) / all : T(0);
  });
}

}  // namespace

template <class T>
void choose_experts(Cuda on, const ExpertSizes& sizes, const T* scores, std::int32_t* places) {
  launch(on, "choose_experts", choose_experts_kernel<T>, blocks_for(sizes.tokens), sizes, scores, places);
}

template <class T>
void sort_by_expert(Cuda on, const ExpertSizes& sizes, const std::int32_t* places, std::int32_t* rows,
                    std::int32_t* tokens, std::int32_t* starts, T* shares) {
  const Index count = sizes.choices();
  const Scratch<std::int32_t> keys(on, count);
  launch(on, "expert_keys", expert_keys_kernel, blocks_for(count), sizes, places, keys.data());
  const SortedKeys sorted(on, count, sizes.experts, keys.data());
  launch(on, "place_choices", place_choices_kernel, blocks_for(count + 1), sizes, sorted.keys(),
         sorted.positions(), rows, tokens, starts);
  launch(on, "expert_shares", expert_shares_kernel<T>, blocks_for(sizes.experts), sizes, starts, shares);
}

TAPEFORMER_WIDE_KERNEL(Cuda, sort_by_expert);
TAPEFORMER_CUDA_KERNEL(choose_experts);

}  // namespace tapeformer::kernels
