#pragma once

#include <tapeformer/autograd/kernels/cuda/tensor_core.h>

#include <algorithm>
#include <cstring>

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

/// Numbers in the type for sums: two of bf16 in a register take one instruction each.
template <class T, int N>
__device__ Pack<Wide<T>, N> widened(const Pack<T, N>& x) {
  Pack<Wide<T>, N> y;
  constexpr int kTogether = std::is_same<T, BFloat16>::value && N % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int k = 0; k < N; k += kTogether) {
    if constexpr (kTogether == 2) {
      std::uint32_t pair;
      std::memcpy(&pair, x.of + k, sizeof pair);
      const std::uint32_t words[2] = {pair << 16, pair & 0xFFFF0000u};
      std::memcpy(y.of + k, words, sizeof words);
    } else {
      y.of[k] = static_cast<Wide<T>>(x.of[k]);
    }
  }
  return y;
}
/// Rounded to T: two numbers to bf16 at once, in one instruction.
template <class T, int N>
__device__ Pack<T, N> narrowed(const Pack<Wide<T>, N>& x) {
  Pack<T, N> y;
  constexpr int kTogether = std::is_same<T, BFloat16>::value && N % 2 == 0 ? 2 : 1;
#pragma unroll
  for (int k = 0; k < N; k += kTogether) {
    if constexpr (kTogether == 2) {
      const std::uint32_t pair = pack_bf16(x.of[k], x.of[k + 1]);
      std::memcpy(y.of + k, &pair, sizeof pair);
    } else {
      y.of[k] = static_cast<T>(x.of[k]);
    }
  }
  return y;
}

template <int N, class W>
__device__ void add_pack(Pack<W, N>& sums, const Pack<W, N>& values) {
#pragma unroll
  for (int k = 0; k < N; ++k) sums.of[k] += values.of[k];
}

/// Assigns or adds, as `y` says, N neighbours from element i on.
template <int N, class T>
__device__ void put_pack(const Write<T>& y, Index i, Pack<Wide<T>, N> values) {
  if (y.add) add_pack(values, widened(load_pack<N>(y.to + i)));
  store_pack(y.to + i, narrowed<T>(values));
}

/// Calls use(constant): N if numbers are `packed`, else 1.
template <int N, class Use>
void with_packs(bool packed, Use&& use) {
  packed ? use(std::integral_constant<int, N>{}) : use(std::integral_constant<int, 1>{});
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
/// The blocks for such a loop: a few times what a GPU runs at once, so that threads take several packs of
/// large sizes.
constexpr Index kMostPackBlocks = 2048;
template <int N>
Index blocks_for_packs(Index count, bool packed) {
  return blocks_for(std::min(packed ? tiles_of(count, N) : count, kMostPackBlocks * kBlock));
}

}  // namespace tapeformer::kernels
