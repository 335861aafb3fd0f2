#pragma once

#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/cuda/sort.h>
#include <tapeformer/autograd/kernels/sparse_attention.h>

#include <algorithm>

// A warp for each query and head, or for each key, which sums gradients in the order of the queries.

namespace tapeformer::kernels {

constexpr Index kSparseWarps = kBlock / kWarp;

/// The blocks of `count` warps, each with `width` numbers of shared memory.
template <class W>
Grid warps_for(Index count, Index width) {
  return {std::min<Index>(tiles_of(count, kSparseWarps), 65536), kBlock,
          static_cast<std::size_t>(kSparseWarps * width) * sizeof(W)};
}

/// A warp's numbers: lane l alone uses l, l + 32 and so on.
template <class W>
__device__ W* own_sums(Index width) {
  return dynamic_shared<W>() + own_warp() * width;
}
template <class F>
__device__ void for_own(Index width, F&& f) {
  for (Index i = own_lane(); i < width; i += kWarp) f(i);
}

/// a . b, to every lane of the warp.
template <class T>
__device__ Wide<T> warp_product(Index width, const T* a, const T* b) {
  Wide<T> sum = 0;
  for_own(width, [&](Index i) { sum += static_cast<Wide<T>>(a[i]) * static_cast<Wide<T>>(b[i]); });
  return warp_sum(sum);
}
template <class T>
__device__ Wide<T> product(Index width, const T* a, const T* b) {
  Wide<T> sum = 0;
  for (Index i = 0; i < width; ++i) sum += static_cast<Wide<T>>(a[i]) * static_cast<Wide<T>>(b[i]);
  return sum;
}

/// The choices of all queries, sorted by key and then by their numbers, which are places in [B, T, K].
struct Choices {
  const std::int32_t *keys, *places;
  Index count;

  /// The first choice, from the number `from` on, of `key`, or else of the keys after it.
  __device__ Index first(Index key, Index from = 0) const {
    Index low = 0, high = count;
    while (low < high) {
      const Index middle = (low + high) / 2;
      if (keys[middle] < key || (keys[middle] == key && places[middle] < from))
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};
inline Choices choices_of(const KeysOfQueries& keys, const SortedKeys& sorted) {
  return {sorted.keys(), sorted.positions(), keys.rows() * keys.top_k};
}

}  // namespace tapeformer::kernels
