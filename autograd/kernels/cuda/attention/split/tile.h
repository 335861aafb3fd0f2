#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/mma/mma.h>
#include <tapeformer/autograd/kernels/cuda/attention/plain/tile.h>

namespace tapeformer::kernels {

// A tile of attention of few queries: kSplitRows rows of the scores, kKeyTile keys. bf16 uses tensor cores,
// other types plain arithmetic on the real rows.

constexpr int kSplitRows = 16;  // of the scores: queries of all heads that share a key head
constexpr int kSplitThreads = 128, kSplitWarps = kSplitThreads / kWarp;
constexpr int kRowThreads = kSplitThreads / kSplitRows,
              kOwnKeys = kKeyTile / kRowThreads;  // of a row of the scores
constexpr int kScorePitch = kKeyTile + 4, kWeightPitch = kKeyTile + 8;

template <class T>
constexpr bool kUsesTensorCores = std::is_same_v<T, BFloat16>;

/// The layout of rows in shared memory, and how blocks share the keys and the rows of scores.
struct SplitPlan {
  int key_chunks, value_chunks;  // of 16 bytes, in whole fragments
  int stages;                    // tiles of keys and values, one of which may be loading
  bool values_are_keys;          // the values are the beginnings of the keys: loaded once
  int parts, part_keys, row_tiles;
};

/// Rows an odd number of 16 bytes apart are in different banks.
__device__ inline int pitch_of(int chunks) { return chunks | 1; }

/// Begins to copy `count` rows to shared memory, with zeros next to them and after them, up to `rows`.
template <class T, class RowAt>
__device__ void load_rows(T* to, int chunks, int rows, int count, Index width, RowAt&& row_at) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * chunks; i += kSplitThreads) {
    const int row = i / chunks, at = i % chunks;
    copy_async_16(to + (row * pitch_of(chunks) + at) * kPackSize<T>,
                  row_at(min(row, count - 1)) + at * kPackSize<T>, row < count && at * kPackSize<T> < width);
  }
}

/// scores = factor * queries keys^T
template <class T>
__device__ void find_scores(const T* queries, const T* keys, int chunks, int rows, Wide<T> factor,
                            Wide<T>* scores) {
  const int pitch = pitch_of(chunks) * kPackSize<T>;
  if constexpr (kUsesTensorCores<T>) {  // 16 keys per warp
    const T* const own_query = queries + own_lane() % 16 * pitch + own_lane() / 16 * 8;
    const T* const own_key =
        keys + (own_warp() * 16 + own_lane() % 8 + own_lane() / 16 * 8) * pitch + own_lane() / 8 % 2 * 8;
    float sums[2][4] = {};
#pragma unroll 4
    for (int k = 0; k < chunks * 8; k += 16) {
      unsigned a[4], b[4];
      load_matrix_x4(a, own_query + k);
      load_matrix_x4(b, own_key + k);
      mma_bf16(sums[0], a, b[0], b[1]);
      mma_bf16(sums[1], a, b[2], b[3]);
    }
    float* const own = scores + own_lane() / 4 * kScorePitch + own_warp() * 16 + own_lane() % 4 * 2;
    for (int j = 0; j < 2; ++j) {
      for (int i = 0; i < 4; ++i) own[i / 2 * 8 * kScorePitch + j * 8 + i % 2] = factor * sums[j][i];
    }
  } else {
    const int key = static_cast<int>(threadIdx.x) % kKeyTile;
    for (int row = static_cast<int>(threadIdx.x) / kKeyTile; row < rows; row += kSplitThreads / kKeyTile) {
      T sum = T(0);
      for (int i = 0; i < chunks; ++i) {
        const Pack<T>&a = reinterpret_cast<const Pack<T>*>(queries + row * pitch)[i],
              &b = reinterpret_cast<const Pack<T>*>(keys + key * pitch)[i];
        for (int j = 0; j < kPackSize<T>; ++j) sum += a.of[j] * b.of[j];
      }
      scores[row * kScorePitch + key] = factor * sum;
    }
  }
}

/// A thread's sums of the outputs: columns of all rows, or of bf16 its fragments of a warp's columns.
template <class T, int kColumns>
struct SplitSums {
  T of[kColumns / kSplitThreads][kSplitRows];
};
template <int kColumns>
struct SplitSums<BFloat16, kColumns> {
  float of[kColumns / kSplitWarps / 8][4];
};

/// Calls f(sum, row, column) for this thread's sums.
template <class T, int kColumns, class F>
__device__ void each_sum(SplitSums<T, kColumns>& sums, F&& f) {
  if constexpr (kUsesTensorCores<T>) {
    const int row = own_lane() / 4, column = own_warp() * 16 + own_lane() % 4 * 2;
#pragma unroll
    for (int j = 0; j < kColumns / kSplitWarps / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        f(sums.of[j][i], row + i / 2 * 8, column + j / 2 * kSplitWarps * 16 + j % 2 * 8 + i % 2);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kColumns / kSplitThreads; ++j) {
#pragma unroll
      for (int row = 0; row < kSplitRows; ++row)
        f(sums.of[j][row], row, static_cast<int>(threadIdx.x) + j * kSplitThreads);
    }
  }
}

/// sums += weights values; values that no query sees count as zero. seen[j] has a bit for each of keys 8 j to
/// 8 j + 7.
template <class T, int kColumns>
__device__ void add_values(const T* weights, const T* values, int chunks, int pitch, int rows,
                           const unsigned* seen, SplitSums<T, kColumns>& sums) {
  if constexpr (kUsesTensorCores<T>) {
#pragma unroll
    for (int k = 0; k < kKeyTile / 16; ++k) {
      unsigned a[4];
      load_matrix_x4(a, weights + own_lane() % 16 * kWeightPitch + own_lane() / 16 * 8 + k * 16);
      const int t = own_lane() % 4 * 2;
      const unsigned low = seen[2 * k] >> t, high = seen[2 * k + 1] >> t;
#pragma unroll
      for (int j = 0; j < kColumns / kSplitWarps / 8; j += 2) {
        const int column = own_warp() * 16 + j / 2 * kSplitWarps * 16;
        if (column >= chunks * 8) continue;
        unsigned b[4];
        load_matrix_x4_transposed(b,
                                  values + (k * 16 + own_lane() % 16) * pitch + column + own_lane() / 16 * 8);
        for (int i = 0; i < 4; ++i) b[i] = seen_pair(b[i], i % 2 == 0 ? low : high);
        mma_bf16(sums.of[j], a, b[0], b[1]);
        mma_bf16(sums.of[j + 1], a, b[2], b[3]);
      }
    }
  } else {
    for (int key = 0; key < kKeyTile; ++key) {
      if ((seen[key / 8] >> key % 8 & 1u) == 0) continue;
#pragma unroll
      for (int j = 0; j < kColumns / kSplitThreads; ++j) {
        const int column = static_cast<int>(threadIdx.x) + j * kSplitThreads;
        if (column >= chunks * kPackSize<T>) continue;
        const T value = values[key * pitch + column];
#pragma unroll
        for (int row = 0; row < kSplitRows; ++row) {
          if (row < rows) sums.of[j][row] += weights[row * kScorePitch + key] * value;
        }
      }
    }
  }
}

}  // namespace tapeformer::kernels
