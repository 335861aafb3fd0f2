#include <tapeformer/autograd/kernels/cuda.h>
#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/embedding.h>

namespace tapeformer::kernels {
namespace {

constexpr int kWarps = kBlock / kWarp;
constexpr int kLaneColumns = 4;
constexpr int kTile = kWarp * kLaneColumns;  // columns whose gradients a warp sums

template <class Team, class T>
__global__ void embedding_forward_kernel(Index count, Index vocabulary, Index width, const std::int32_t* ids,
                                         const T* table, T* y) {
  for_each_row<Team>(count, [&](Index i) {
    const std::int32_t id = ids[i];
    const bool exists = id >= 0 && id < vocabulary;
    for (Index k = Team::lane(); k < width; k += Team::kThreads)
      y[i * width + k] = exists ? table[id * width + k] : T(0);
  });
}

/// True for the whole warp if one of ids [count] is `id`.
__device__ bool contains(Index count, const std::int32_t* ids, std::int32_t id) {
  bool found = false;
  for (Index base = 0; !found && base < count; base += kWarp) {
    const Index j = base + threadIdx.x % kWarp;
    found = __any_sync(0xFFFFFFFFu, j < count && ids[j] == id) != 0;
  }
  return found;
}

/// A warp for position i and a tile of columns. Where an id occurs first, it sums all its rows in their
/// order; at later occurrences there is nothing to do.
template <class T>
__global__ void embedding_backward_kernel(Index count, Index vocabulary, Index width, const std::int32_t* ids,
                                          const T* dy, Write<Wide<T>> dtable) {
  const Index i = Index{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (i >= count) return;
  const std::int32_t id = ids[i];
  if (id < 0 || id >= vocabulary || contains(i, ids, id)) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Index tile = Index{blockIdx.y} * kTile + lane;
  Wide<T> sums[kLaneColumns];
  for (int c = 0; c < kLaneColumns; ++c) {
    const Index k = tile + c * kWarp;
    sums[c] = dtable.add && k < width ? dtable.to[id * width + k] : Wide<T>(0);
  }
  for (Index base = i; base < count; base += kWarp) {
    unsigned matches = __ballot_sync(0xFFFFFFFFu, base + lane < count && ids[base + lane] == id);
    for (; matches != 0; matches &= matches - 1) {
      const T* row = dy + (base + __ffs(static_cast<int>(matches)) - 1) * width;
      for (int c = 0; c < kLaneColumns; ++c) {
        const Index k = tile + c * kWarp;
        if (k < width) sums[c] += static_cast<Wide<T>>(row[k]);
      }
    }
  }
  for (int c = 0; c < kLaneColumns; ++c) {
    const Index k = tile + c * kWarp;
    if (k < width) dtable.to[id * width + k] = sums[c];
  }
}

}  // namespace

template <class T>
void embedding_forward(Cuda on, Index count, Index vocabulary, Index width, const std::int32_t* ids,
                       const T* table, T* y) {
  with_team(count, width, [&](auto team, dim3 blocks) {
    launch(on, "embedding_forward", embedding_forward_kernel<decltype(team), T>, blocks, dim3(kBlock), 0,
           count, vocabulary, width, ids, table, y);
  });
}

template <class T>
void embedding_backward(Cuda on, Index count, Index vocabulary, Index width, const std::int32_t* ids,
                        const T* dy, Write<Wide<T>> dtable) {
  if (!dtable.add) cuda::fill(on.device, dtype_of<Wide<T>>(), vocabulary * width, 0, dtable.to);
  const dim3 grid(static_cast<unsigned>((count + kWarps - 1) / kWarps),
                  static_cast<unsigned>((width + kTile - 1) / kTile));
  launch(on, "embedding_backward", embedding_backward_kernel<T>, grid, dim3(kBlock), 0, count, vocabulary,
         width, ids, dy, dtable);
}

#define INSTANTIATE(T)                                                                           \
  template void embedding_forward(Cuda, Index, Index, Index, const std::int32_t*, const T*, T*); \
  template void embedding_backward(Cuda, Index, Index, Index, const std::int32_t*, const T*, Write<Wide<T>>);
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(BFloat16)
#undef INSTANTIATE

}  // namespace tapeformer::kernels
