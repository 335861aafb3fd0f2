#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/cuda/sort.h>
#include <tapeformer/autograd/kernels/embedding.h>

namespace tapeformer::kernels {
namespace {

constexpr int kWarps = kBlock / kWarp;
constexpr Index kRun = kWarp;  // rows of dy, in the order of their ids, that a warp sums
constexpr int kAtOnce = 4;     // of which are loaded together

template <class T>
__global__ void embedding_forward_kernel(Index count, bool packed, Index vocabulary, Index width,
                                         const std::int32_t* ids, const T* table, T* y) {
  for_each_pack_of_grid<kCommonPack<T>>(count * width, packed, [&](auto size, Index i) {
    constexpr int N = decltype(size)::value;
    const Division place = divide(i, width);
    const std::int32_t id = ids[place.quotient];
    Pack<T, N> values;
    for (T& value : values.of) value = T(0);
    if (id >= 0 && id < vocabulary) values = load_pack<N>(table + id * width + place.remainder);
    store_pack(y + i, values);
  });
}

/// Rows of dy in the order of their ids, divided into chunks of kRun.
struct SortedRows {
  Index count, vocabulary, width;
  const std::int32_t *ids, *positions;
};

/// This warp's chunk, and the first of this lane's N columns.
struct Place {
  Index chunk, column;
};
template <int N>
__device__ Place place_of_warp() {
  return {Index{blockIdx.x} * kWarps + own_warp(), (Index{blockIdx.y} * kWarp + own_lane()) * N};
}

/// A warp sums the rows of each id in its chunk. If it has all rows of an id, the sum goes to the table. The
/// first and the last id may have rows in other chunks too, and their sums go to pieces [chunks, 2, width]:
/// [.., 0] if the id's first row is in an earlier chunk, [.., 1] if it is here.
template <int N, class T>
__global__ void sum_chunks_kernel(SortedRows rows, const T* dy, Write<Wide<T>> dtable, Wide<T>* pieces) {
  using W = Wide<T>;
  const auto [chunk, column] = place_of_warp<N>();
  const Index first = chunk * kRun, own = first + own_lane(), end = first + kRun;
  if (first >= rows.count) return;  // the whole warp
  const auto none = static_cast<std::int32_t>(rows.vocabulary);
  const std::int32_t own_id = own < rows.count ? rows.ids[own] : none;
  const std::int32_t own_position = own < rows.count ? rows.positions[own] : 0;
  const std::int32_t before = first > 0 ? rows.ids[first - 1] : -1;
  const std::int32_t after = end < rows.count ? rows.ids[end] : -1;
  bool began_before = before == __shfl_sync(kAllLanes, own_id, 0);
  Pack<W, N> sums{};
  for (int base = 0; base < kRun; base += kAtOnce) {
    std::int32_t ids[kAtOnce + 1];
    Pack<T, N> values[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      ids[u] = __shfl_sync(kAllLanes, own_id, base + u);
      const Index position = __shfl_sync(kAllLanes, own_position, base + u);
      if (ids[u] < none && column < rows.width) values[u] = load_pack<N>(dy + position * rows.width + column);
    }
    const std::int32_t next = __shfl_sync(kAllLanes, own_id, (base + kAtOnce) % kWarp);
    ids[kAtOnce] = base + kAtOnce < kRun ? next : after;
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (ids[u] >= none || column >= rows.width) continue;
      add_pack(sums, widened(values[u]));
      const bool goes_on = ids[u] == ids[u + 1];
      if (goes_on && base + u + 1 < kRun) continue;
      const bool is_piece = goes_on || began_before;
      W* const to = is_piece ? pieces + (2 * chunk + (began_before ? 0 : 1)) * rows.width
                             : dtable.to + ids[u] * rows.width;
      put_pack(Write<W>{to, !is_piece && dtable.add}, column, sums);
      began_before = false;
      sums = Pack<W, N>{};
    }
  }
}

/// The end of the run of `id`, which is ids [from].
__device__ Index end_of(const SortedRows& rows, Index from, std::int32_t id) {
  Index there = from, behind = rows.count;
  while (behind - there > 1) {
    const Index middle = there + (behind - there) / 2;
    (rows.ids[middle] == id ? there : behind) = middle;
  }
  return behind;
}

/// If an id's rows begin in a chunk and continue in others, a warp adds the pieces in order.
template <int N, class W>
__global__ void join_pieces_kernel(SortedRows rows, const W* pieces, Write<W> dtable) {
  const auto [chunk, column] = place_of_warp<N>();
  const Index first = chunk * kRun, end = first + kRun;
  if (end >= rows.count || column >= rows.width) return;
  const std::int32_t id = rows.ids[end];
  if (id >= rows.vocabulary || rows.ids[end - 1] != id) return;
  if (first > 0 && rows.ids[first - 1] == id) return;
  const Index last = (end_of(rows, end, id) - 1) / kRun;
  Pack<W, N> sums = load_pack<N>(pieces + (2 * chunk + 1) * rows.width + column);
#pragma unroll 4
  for (Index other = chunk + 1; other <= last; ++other)
    add_pack(sums, load_pack<N>(pieces + 2 * other * rows.width + column));
  put_pack(dtable, id * rows.width + column, sums);
}

}  // namespace

template <class T>
void embedding_forward(Cuda on, Index count, Index vocabulary, Index width, const std::int32_t* ids,
                       const T* table, T* y) {
  constexpr int N = kCommonPack<T>;
  const bool packed = width % N == 0 && are_packed(table, y);
  launch(on, "embedding_forward", embedding_forward_kernel<T>, blocks_for_packs<N>(count * width, packed),
         count, packed, vocabulary, width, ids, table, y);
}

template <class T>
void embedding_backward(Cuda on, Index count, Index vocabulary, Index width, const std::int32_t* ids,
                        const T* dy, Write<Wide<T>> dtable) {
  using W = Wide<T>;
  if (!dtable.add) cuda::fill(on.device, dtype_of<W>(), vocabulary * width, 0, dtable.to);
  if (count == 0 || width == 0) return;
  const SortedKeys sorted(on, count, vocabulary, ids);
  const SortedRows rows{count, vocabulary, width, sorted.keys(), sorted.positions()};
  const Index chunks = tiles_of(count, kRun);
  const Scratch<W> pieces(on, chunks * 2 * width);
  constexpr int kPack = kCommonPack<T>;
  with_packs<kPack>(width % kPack == 0 && are_packed(dy, dtable.to), [&](auto size) {
    constexpr int N = decltype(size)::value;
    const Grid grid(tiles_of(chunks, kWarps), tiles_of(width, kWarp * N), 1, kBlock);
    launch(on, "embedding_backward_chunks", sum_chunks_kernel<N, T>, grid, rows, dy, dtable, pieces.data());
    launch(on, "embedding_backward_pieces", join_pieces_kernel<N, W>, grid, rows, pieces.data(), dtable);
  });
}

TAPEFORMER_CUDA_KERNEL(embedding_forward);
TAPEFORMER_CUDA_KERNEL(embedding_backward);

}  // namespace tapeformer::kernels
