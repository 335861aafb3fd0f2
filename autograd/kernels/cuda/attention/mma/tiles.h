#pragma once

#include <tapeformer/autograd/kernels/cuda/pack.h>

#include <type_traits>

namespace tapeformer::kernels {

// Tiles are rows in shared memory, of bf16 or of f32 rounded to TF32, as T says; here are their loads and the
// products of a warp.

/// The distance of rows in a tile: an odd number of 16 bytes, so that eight rows are in different banks.
template <int kWidth, class T>
constexpr int kPitch = kWidth + kPackSize<T>;

/// The terms of a product.
template <class T>
constexpr int kTerms = 2 * kPackSize<T>;

/// The widest heads; wider rows of f32 have no room in shared memory.
template <class T>
constexpr Index kWidestHead = std::is_same_v<T, BFloat16> ? 256 : 128;

/// A factor as tensor cores take it.
__device__ inline float as_factor(BFloat16 x) { return static_cast<float>(x); }
__device__ inline float as_factor(float x) { return __uint_as_float(round_tf32(x)); }

/// c += a b
template <class T>
__device__ void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (std::is_same_v<T, BFloat16>)
    mma_bf16(c, a, b0, b1);
  else
    mma_tf32(c, a, b0, b1);
}

/// The address that a thread reads for the first rows that load_tile() copies: `from` is the tile's first
/// number.
template <int kWidth, class T>
__device__ const T* own_place(const T* from, Index stride) {
  constexpr unsigned kChunks = kWidth / kPackSize<T>;
  return from + static_cast<int>(threadIdx.x / kChunks) * stride + threadIdx.x % kChunks * kPackSize<T>;
}
/// Begins to copy kRows rows of `width` numbers, whole packs, to a tile, with zeros next to them and
/// after the first `rows`. `own` is own_place(), and afterwards that of the next rows. The caller commits.
template <int kRows, int kWidth, int kThreads, class T>
__device__ void load_next_tile(T* tile, const T*& own, Index stride, int rows, int width) {
  constexpr int kChunks = kWidth / kPackSize<T>, kStep = kThreads / kChunks;  // kStep rows at a time
  static_assert(kThreads % kChunks == 0 && kRows % kStep == 0, "threads keep their columns");
  const unsigned thread = anew(threadIdx.x);
  const int row = static_cast<int>(thread / kChunks), at = static_cast<int>(thread % kChunks * kPackSize<T>);
  const int count = at < width ? rows - row : 0;
#pragma unroll
  for (int i = 0; i < kRows; i += kStep) {
    copy_async_16(tile + (row + i) * kPitch<kWidth, T> + at, own, i < count);  // missing rows are not read
    own += kStep * stride;
  }
}
template <int kRows, int kWidth, int kThreads, class T>
__device__ void load_tile(T* tile, const T* from, Index stride, int rows, int width) {
  const T* own = own_place<kWidth>(from, stride);
  load_next_tile<kRows, kWidth, kThreads>(tile, own, stride, rows, width);
}
/// Rounds the part of a tile of f32 that this thread has copied, between its wait and the barrier: once,
/// and not once for each warp that multiplies it.
template <int kRows, int kWidth, int kThreads, class T>
__device__ void round_tile(T* tile) {
  if constexpr (std::is_same_v<T, float>) {
    constexpr int kChunks = kWidth / kPackSize<T>, kStep = kThreads / kChunks;
    const int thread = static_cast<int>(threadIdx.x);
    T* const own = tile + thread / kChunks * kPitch<kWidth, T> + thread % kChunks * kPackSize<T>;
#pragma unroll
    for (int i = 0; i < kRows; i += kStep) {
      auto chunk = load_pack<kPackSize<T>>(own + i * kPitch<kWidth, T>);
#pragma unroll
      for (float& x : chunk.of) x = as_factor(x);
      store_pack(own + i * kPitch<kWidth, T>, chunk);
    }
  }
}

/// Loads the factor `a` of 16 kRowTiles rows of a tile; `rows` comes from rows_by_16.
template <int kWidth, int kRowTiles, class T>
__device__ void load_rows_of_a(unsigned (&a)[kRowTiles][4], const T* rows) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) load_matrix_x4(a[r], rows + r * 16 * kPitch<kWidth, T>);
}
/// products[r][j] = 16 of the warp's rows by 8 moving ones, summed over the width. a_at(at, loaded) returns
/// the factor `a` of the warp's rows and kTerms columns from `at` on, perhaps in `loaded`; `moving` comes
/// from rows_by_8.
template <int kWidth, int kRowTiles, int kFragments, class T, class Own>
__device__ void multiply_moving(float (&products)[kRowTiles][kFragments][4], const T* moving,
                                const Own& a_at) {
#pragma unroll
  for (int i = 0; i < kRowTiles * kFragments * 4; ++i)
    products[i / (kFragments * 4)][i / 4 % kFragments][i % 4] = 0;
#pragma unroll
  for (int at = 0; at < kWidth; at += kTerms<T>) {
    unsigned loaded[kRowTiles][4];
    const auto& a = a_at(at, loaded);
#pragma unroll
    for (int j = 0; j < kFragments; j += 2) {
      unsigned b[4];
      load_matrix_x4(b, moving + j * 8 * kPitch<kWidth, T> + at);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        multiply_add<T>(products[r][j], a[r], b[0], b[1]);
        multiply_add<T>(products[r][j + 1], a[r], b[2], b[3]);
      }
    }
  }
}
/// Multiplies rows of a tile; `own` comes from rows_by_16.
template <int kWidth, int kRowTiles, int kFragments, class T>
__device__ void multiply_rows(float (&products)[kRowTiles][kFragments][4], const T* own, const T* moving) {
  multiply_moving<kWidth>(
      products, moving, [own](int at, unsigned(&loaded)[kRowTiles][4]) -> const auto& {
        load_rows_of_a<kWidth>(loaded, own + at);
        return loaded;
      });
}

/// Puts the factors of two neighbouring keys, which are element [j][2 h] of a row's fragments and the next,
/// into the `a` of products that sum over keys. Terms t and t + 4 of TF32 are keys 2 t and 2 t + 1.
template <class T>
__device__ void put_pair(unsigned (*a)[4], int j, int h, float low, float high) {
  if constexpr (std::is_same_v<T, BFloat16>)
    a[j / 2][j % 2 * 2 + h] = pack_bf16(low, high);
  else
    a[j][h] = round_tf32(low), a[j][h + 2] = round_tf32(high);
}
/// sums[r] += a_of(r) times the rows of kTerms keys in TF32: a lane points at column 4 g of those of its two
/// terms. It reads 16 bytes at a time, so column g of fragment n is column 32 (n / 4) + 4 g + n % 4 of the
/// rows. `low_bits` and `high_bits` are 0 for rows that count as zero.
template <int kRowTiles, int kColumns, class A>
__device__ void add_rows_tf32(float (&sums)[kRowTiles][kColumns][4], const A& a_of, const float* low,
                              const float* high, unsigned low_bits = ~0u, unsigned high_bits = ~0u) {
#pragma unroll
  for (int n = 0; n < kColumns; n += 4) {
    const Pack<float> b0 = load_pack<4>(low + n * 8), b1 = load_pack<4>(high + n * 8);
#pragma unroll
    for (int i = 0; i < 4 * kRowTiles; ++i)
      mma_tf32(sums[i / 4][n + i % 4], a_of(i / 4), __float_as_uint(b0.of[i % 4]) & low_bits,
               __float_as_uint(b1.of[i % 4]) & high_bits);
  }
}
/// Calls put(column, values) for the packs below `width` of a lane's sums of row g + 8 h, times `scale`.
template <class T, int kColumns, class Put>
__device__ void for_each_pack_of_sums(const float (&sums)[kColumns][4], int h, float scale, int width,
                                      Put&& put) {
  const int t = own_lane() % 4;
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (8 * n < width)
        put(8 * n + 2 * t, Pack<float, 2>{{scale * sums[n][2 * h], scale * sums[n][2 * h + 1]}});
    } else if (n % 2 == 0) {
      const int first = n / 4 * 4, c = n / 2 % 2, column = 8 * first + 8 * t + 4 * c;
      Pack<float> values;
#pragma unroll
      for (int i = 0; i < 4; ++i) values.of[i] = scale * sums[first + i][2 * h + c];
      if (column < width) put(column, values);
    }
  }
}

}  // namespace tapeformer::kernels
