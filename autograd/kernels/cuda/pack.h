#pragma once

#include <tapeformer/autograd/kernels/cuda/device.h>

#include <algorithm>

namespace tapeformer::kernels {

/// The number of elements that a thread reads or writes at once.
template <class T>
constexpr int kPackSize = static_cast<int>(16 / sizeof(T));

/// N neighbours in memory, moved in accesses of 16 bytes, or all at once if they are fewer bytes.
template <class T, int N = static_cast<int>(16 / sizeof(T))>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T of[N];
};

/// True if packs may be read and written at all of the addresses.
template <class... T>
__host__ __device__ inline bool are_packed(const T*... at) {
  return ((reinterpret_cast<std::uintptr_t>(at) | ... | std::uintptr_t{0}) & 15u) == 0;
}

/// `from` must have the alignment of the pack.
template <int N, class T>
__device__ Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, class T>
__device__ void store_pack(T* to, const Pack<T, N>& values) {
  *reinterpret_cast<Pack<T, N>*>(to) = values;
}

/// Assigns or adds, as `y` says, N neighbours from element i on.
template <int N, class T>
__device__ void put_pack(const Write<T>& y, Index i, const Pack<Wide<T>, N>& values) {
  Pack<T, N> out;
  if (y.add) out = load_pack<N>(y.to + i);
#pragma unroll
  for (int k = 0; k < N; ++k)
    out.of[k] = static_cast<T>(y.add ? static_cast<Wide<T>>(out.of[k]) + values.of[k] : values.of[k]);
  store_pack(y.to + i, out);
}

/// The number of elements of the widest of the types that fit into 16 bytes.
template <class... T>
constexpr int kCommonPack = static_cast<int>(16 / std::max({sizeof(T)...}));

/// Calls use(constant N, i) for this thread's packs of N elements below `count`, beginning at i, and with N =
/// 1 for the rest: for all of them unless `packed`.
template <int N, class Use>
__device__ void for_each_pack_of_grid(Index count, bool packed, Use&& use) {
  const Index packs = packed ? count / N : 0;
  for_each_index(packs, [&](Index i) { use(std::integral_constant<int, N>{}, i * N); });
  for_each_index(count - packs * N, [&](Index i) { use(std::integral_constant<int, 1>{}, packs * N + i); });
}
/// Blocks for it: a few times what a GPU runs at once, so that threads take several packs of large sizes.
constexpr Index kMostPackBlocks = 2048;
template <int N>
Index blocks_for_packs(Index count, bool packed) {
  return blocks_for(std::min(packed ? tiles_of(count, N) : count, kMostPackBlocks * kBlock));
}

}  // namespace tapeformer::kernels
