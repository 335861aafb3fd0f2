#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/mma/mma.h>
#include <tapeformer/autograd/kernels/cuda/attention/plain/tile.h>

namespace tapeformer::kernels {

// Attention's backward pass on tensor cores. One kernel has tiles of queries and loops over the keys, for
// dquery; the other has tiles of keys and loops over the queries that see them, for dkey and dvalue. Both
// compute scores and their gradients, 7 products instead of the 5 of a single kernel, but none waits for
// another, adds to memory that others add to, or needs memory for parts of sums. The rows of scores are the
// block's own rows, for keys too (there scores are transposed), so sums over the moving rows go from one
// product into the next in registers.

constexpr int kMoving = kKeyTile;      // rows in shared memory at a time
constexpr Index kPaddedQueries = 128;  // facts of queries are padded to multiples of this

/// The dimensions of a block of kernels for widths up to kWidth.
template <int kWidth>
struct BackwardBlock {
  static constexpr int kRowTiles = kWidth <= 64 ? 2 : 1;  // of 16 rows each, of a warp
  static constexpr int kWarps = kWidth == 128 ? 8 : 4, kThreads = kWarps * kWarp;
  static constexpr int kOwn = kWarps * kRowTiles * 16;   // rows
  static constexpr int kStages = kWidth == 256 ? 1 : 2;  // of moving rows; two while there is room
  static constexpr int kAtOnce = kWidth <= 64 ? 2 : 1;   // blocks of a multiprocessor, by their registers
  static constexpr int kStep = kWidth <= 64 ? 32 : 64;   // moving rows in registers at a time
  static_assert(kStep * kRowTiles == 64, "a lane has 32 pairs of a moving row and an own one at a time");
  static_assert(kPaddedQueries % kOwn == 0 && kPaddedQueries % kMoving == 0, "whole tiles");
};

/// Computed for all queries before the rest, with T rounded up to kPaddedQueries.
struct PreparedQueries {
  Index padded;
  /// [B, H, padded], in the unit of scores. Infinite for rows that see nothing, so that all their weights are
  /// zero.
  float* log_sums;
  /// [B, H, padded]: sum over e of dy y, in theory the sum over the keys of each weight times its gradient.
  float* deltas;
  /// [B, H, padded]: factors that make the weights of a row add up to one; null where exp(score - log_sum)
  /// does.
  float* shares;
  SeenKeys* ranges;   // [B, padded]
  JointRange* tiles;  // [B, padded / kMoving]
};

struct MmaGradient : AttentionOperands<BFloat16>, AttentionGradients<BFloat16> {
  const BFloat16* dy;
  HeadStrides dy_strides;
  PreparedQueries prepared;
};

/// A block's shared memory: two kinds of its own rows (queries and dy, or keys and values) and of the moving
/// ones.
template <int kWidth>
struct alignas(16) BackwardShared {
  BFloat16 own[2][BackwardBlock<kWidth>::kOwn * kPitch<kWidth>];
  struct alignas(16) Stage {
    BFloat16 rows[2][kMoving * kPitch<kWidth>];
    float log_sums[kMoving], deltas[kMoving], shares[kMoving];  // these of moving queries
    SeenKeys ranges[kMoving];
    JointRange joint;
  } stages[BackwardBlock<kWidth>::kStages];
  std::uint16_t kept[kMoving][BackwardBlock<kWidth>::kOwn / kKeyTile][4];  // kept_bits() of moving queries
};

__device__ inline JointRange of_both(const JointRange& x, const JointRange& y) {
  return {min(x.from, y.from), max(x.to, y.to), max(x.all_from, y.all_from), min(x.all_to, y.all_to)};
}

/// sums[r][n] += factors of the warp's rows and 8 kFragments moving ones, times columns 8 n of the moving
/// rows; `moving` comes from rows_by_16. With kHides, rows without their bit in `seen` count as zero.
template <bool kHides, int kWidth, int kRowTiles, int kFragments>
__device__ void add_products(float (&sums)[kRowTiles][kWidth / 8][4],
                             const float (&factors)[kRowTiles][kFragments][4], const BFloat16* moving,
                             unsigned seen) {
#pragma unroll
  for (int j = 0; j < kFragments; j += 2) {
    unsigned a[kRowTiles][4];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[r][i] = pack_bf16(factors[r][j + i / 2][i % 2 * 2], factors[r][j + i / 2][i % 2 * 2 + 1]);
    }
#pragma unroll
    for (int n = 0; n < kWidth / 8; n += 2) {
      unsigned b[4];
      load_matrix_x4_transposed(b, moving + j * 8 * kPitch<kWidth> + n * 8);
      if (kHides) {
#pragma unroll
        for (int i = 0; i < 4; ++i) b[i] = seen_pair(b[i], seen >> (2 * (j + i % 2)));
      }
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        mma_bf16(sums[r][n], a[r], b[0], b[1]);
        mma_bf16(sums[r][n + 1], a[r], b[2], b[3]);
      }
    }
  }
}

/// As add_products(), hiding moving rows only if the warp does not see all of them.
template <int kWidth, int kRowTiles, int kFragments>
__device__ void add_seen_products(float (&sums)[kRowTiles][kWidth / 8][4],
                                  const float (&factors)[kRowTiles][kFragments][4], const BFloat16* moving,
                                  unsigned seen) {
  constexpr unsigned kAll = (1u << (2 * kFragments)) - 1;
  if (__all_sync(kAllLanes, (seen & kAll) == kAll) != 0)
    add_products<false, kWidth>(sums, factors, moving, seen);
  else
    add_products<true, kWidth>(sums, factors, moving, seen);
}

/// The gradient of a score from its weight and the weight's gradient.
struct WholeDscore {
  __device__ float operator()(float weight, float dweight, float delta) const {
    return weight * (dweight - delta);
  }
};
/// As WholeDscore, but a negative weight was dropped by dropout, and a weight of zero is not visible; then
/// its gradient may be anything.
struct MaskedDscore {
  __device__ float operator()(float weight, float dweight, float delta) const {
    return weight > 0 ? weight * (dweight - delta) : weight * delta;
  }
};

/// Writes the warp's sums to `rows` rows that begin at `at`.
template <int kWidth, int kRowTiles>
__device__ void put_sums(const Write<BFloat16>& to, Index at, Index stride, int rows, Index width,
                         float scale, const float (&sums)[kRowTiles][kWidth / 8][4]) {
  if (!to) return;
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const int row = own_lane() / 4 + 8 * i;
    if (row >= rows) continue;
    unsigned* const pairs = reinterpret_cast<unsigned*>(to.to + at + row * stride) + own_lane() % 4;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      if (8 * n >= width) continue;
      float low = scale * sums[i / 2][n][i % 2 * 2], high = scale * sums[i / 2][n][i % 2 * 2 + 1];
      if (to.add) low += low_bf16(pairs[4 * n]), high += high_bf16(pairs[4 * n]);
      pairs[4 * n] = pack_bf16(low, high);
    }
  }
}

/// The requested gradients, from the prepared facts.
void attention_mma_dquery(Cuda on, const AttentionShape& s, const MmaGradient& x);
void attention_mma_dkey(Cuda on, const AttentionShape& s, const MmaGradient& x);

}  // namespace tapeformer::kernels
