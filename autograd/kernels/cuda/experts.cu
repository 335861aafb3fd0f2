#include <tapeformer/autograd/kernels/cuda/sort.h>
#include <tapeformer/autograd/kernels/cuda/tile_product.h>
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

/// From the choices in the order of their experts, `keys` and `choices`.
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

/// Rows of one expert; `expert` is E where there are none.
struct ExpertTile {
  Index expert, first, end;
};
/// The tile `number` of those that all experts' rows divide into, each of one expert.
__device__ ExpertTile tile_of_expert(Index number, Index experts, const std::int32_t* starts) {
  for (Index e = 0; e < experts; ++e) {
    const Index count = tiles_of(starts[e + 1] - starts[e], kProductTile);
    if (number < count) return {e, starts[e] + number * kProductTile, starts[e + 1]};
    number -= count;
  }
  return {experts, 0, 0};
}

template <class T>
__global__ void multiply_by_expert_kernel(ExpertProducts s, const std::int32_t* starts, const T* x,
                                          const T* w, Write<T> y) {
  using W = Wide<T>;
  const ExpertTile tile = tile_of_expert(blockIdx.x, s.experts, starts);
  if (tile.expert == s.experts) return;  // the whole block
  const Index column = Index{blockIdx.y} * kProductTile;
  const T* const matrix = w + tile.expert * s.n * s.k;
  const W sum = tile_product<W>(
      0, s.k,
      [&](int i, Index k) {
        const Index row = tile.first + i;
        return row < tile.end ? static_cast<W>(x[row * s.k + k]) : W(0);
      },
      [&](Index k, int j) {
        const Index n = column + j;
        return n < s.n ? static_cast<W>(matrix[s.transposed ? n * s.k + k : k * s.n + n]) : W(0);
      });
  const Index row = tile.first + row_in_tile(), n = column + column_in_tile();
  if (row < tile.end && n < s.n) y.put(row * s.n + n, sum);
}

template <class T>
__global__ void outer_by_expert_kernel(ExpertProducts s, const std::int32_t* starts, const T* a, const T* b,
                                       Write<Wide<T>> c) {
  using W = Wide<T>;
  const Index expert = blockIdx.z, first = Index{blockIdx.y} * kProductTile,
              column = Index{blockIdx.x} * kProductTile;
  const W sum = tile_product<W>(
      starts[expert], starts[expert + 1],
      [&](int i, Index row) { return first + i < s.k ? static_cast<W>(a[row * s.k + first + i]) : W(0); },
      [&](Index row, int j) { return column + j < s.n ? static_cast<W>(b[row * s.n + column + j]) : W(0); });
  const Index k = first + row_in_tile(), n = column + column_in_tile();
  if (k < s.k && n < s.n) c.put((expert * s.k + k) * s.n + n, sum);
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

template <class T>
void multiply_by_expert(Cuda on, const ExpertProducts& s, const std::int32_t* starts, const T* x, const T* w,
                        Write<T> y) {
  if (s.rows == 0) return;
  // An expert's last tile may be a part of one.
  const Grid grid(tiles_of(s.rows, kProductTile) + s.experts, tiles_of(s.n, kProductTile), 1, kBlock);
  launch(on, "multiply_by_expert", multiply_by_expert_kernel<T>, grid, s, starts, x, w, y);
}

template <class T>
void outer_by_expert(Cuda on, const ExpertProducts& s, const std::int32_t* starts, const T* a, const T* b,
                     Write<Wide<T>> c) {
  const Grid grid(tiles_of(s.n, kProductTile), tiles_of(s.k, kProductTile), s.experts, kBlock);
  launch(on, "outer_by_expert", outer_by_expert_kernel<T>, grid, s, starts, a, b, c);
}

template void sort_by_expert(Cuda, const ExpertSizes&, const std::int32_t*, std::int32_t*, std::int32_t*,
                             std::int32_t*, float*);
template void sort_by_expert(Cuda, const ExpertSizes&, const std::int32_t*, std::int32_t*, std::int32_t*,
                             std::int32_t*, double*);
#define INSTANTIATE(T)                                                                                   \
  template void choose_experts(Cuda, const ExpertSizes&, const T*, std::int32_t*);                       \
  template void multiply_by_expert(Cuda, const ExpertProducts&, const std::int32_t*, const T*, const T*, \
                                   Write<T>);                                                            \
  template void outer_by_expert(Cuda, const ExpertProducts&, const std::int32_t*, const T*, const T*,    \
                                Write<Wide<T>>);
TAPEFORMER_CUDA_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
