#pragma once

#include <tapeformer/autograd/kernels/attention.h>
#include <tapeformer/autograd/kernels/cuda/tensor_core.h>
#include <tapeformer/autograd/kernels/dropout.h>

#include <limits>

namespace tapeformer::kernels {

// What attention on tensor cores shares, forward and backward. Tiles lie in shared memory as rows of bf16. A
// row of the scores belongs to the four lanes of a quad, which have the same g = lane / 4; of each 8 keys a
// lane has two neighbours, t = lane % 4 (see tensor_core.h). Decisions about kKeyTile keys of a row are bits:
// bit 2 j + c is for key 8 j + 2 t + c of the tile, which is element [j][c] of the row's fragments.

constexpr int kKeyTile = 64, kKeyFragments = kKeyTile / 8;
constexpr unsigned kAllLanes = 0xFFFFFFFFu, kAllSeen = 0xFFFFu;
constexpr float kLog2E = 1.44269504088896341f, kLn2 = 0.693147180559945309f;
constexpr float kNothing = -std::numeric_limits<float>::infinity();  // the score of what is not visible

/// Numbers between rows of a tile: an odd number of 16 bytes, so that eight rows lie in different banks.
template <int kWidth>
constexpr int kPitch = kWidth + 8;

__device__ inline int own_lane() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int own_warp() { return static_cast<int>(threadIdx.x) / kWarp; }

/// Begins to copy kRows rows of `width` numbers, a multiple of 8, to a tile; zeros beside them and behind
/// the `rows` that are there. Whoever calls it commits.
template <int kRows, int kWidth, int kThreads>
__device__ void load_tile(BFloat16* tile, const BFloat16* from, Index stride, int rows, int width) {
  constexpr int kChunks = kWidth / 8, kStep = kThreads / kChunks;  // kStep rows at a time
  static_assert(kThreads % kChunks == 0 && kRows % kStep == 0, "threads keep their columns");
  const int row = static_cast<int>(threadIdx.x) / kChunks, at = static_cast<int>(threadIdx.x) % kChunks * 8;
  const int count = at < width ? rows - row : 0;
  const BFloat16* own = from + row * stride + at;  // not read where nothing is
#pragma unroll
  for (int i = 0; i < kRows; i += kStep) {
    copy_async_16(tile + (row + i) * kPitch<kWidth> + at, own, i < count);
    own += kStep * stride;
  }
}

/// What a lane gives load_matrix_x4 for 16 x 16 numbers of a tile, at + 16 k and so on for others. It gets
/// - the a of a product whose rows are the tile's;
/// - transposed, of a product that sums over the tile's rows (values), {b0, b1} of columns 0 to 7 and
///   {b0, b1} of columns 8 to 15.
template <int kWidth>
__device__ const BFloat16* rows_by_16(const BFloat16* tile) {
  return tile + own_lane() % 16 * kPitch<kWidth> + own_lane() / 16 * 8;
}
/// The same, for a product with the tile transposed (keys): {b0, b1} of rows 0 to 7 and {b0, b1} of rows 8
/// to 15; or transposed, a of the tile transposed.
template <int kWidth>
__device__ const BFloat16* rows_by_8(const BFloat16* tile) {
  return tile + (own_lane() % 8 + own_lane() / 16 * 8) * kPitch<kWidth> + own_lane() / 8 % 2 * 8;
}

/// The keys that a query sees at most.
struct SeenKeys {
  int from = 0, to = 0;
};

/// Of query t, nothing where it is not there.
__device__ inline SeenKeys range_of(const AttentionShape& s, int b, int t) {
  if (t >= s.queries) return {};
  const Index row = Index{b} * s.queries + t;
  const int keys = static_cast<int>(s.keys);
  return {s.key_from != nullptr ? max(0, s.key_from[row]) : 0,
          s.key_to != nullptr ? min(keys, s.key_to[row]) : keys};
}

/// What several queries see: some of them a key in [from, to), all of them those in [all_from, all_to).
struct JointRange {
  int from = std::numeric_limits<int>::max(), to = 0, all_from = 0, all_to = std::numeric_limits<int>::max();

  /// One more query. Those that are not there must be left out, not be given as empty.
  __device__ void add(SeenKeys range) {
    if (range.from < range.to) from = min(from, range.from), to = max(to, range.to);
    all_from = max(all_from, range.from), all_to = min(all_to, range.to);
  }
  /// Of all lanes.
  __device__ void join() {
    const auto least = [](int x, int y) { return min(x, y); };
    const auto most = [](int x, int y) { return max(x, y); };
    from = warp_reduce(from, least), to = warp_reduce(to, most);
    all_from = warp_reduce(all_from, most), all_to = warp_reduce(all_to, least);
  }
  __device__ bool sees(int key, int end) const { return from < to && from < end && to > key; }
  __device__ bool sees_all(int key, int end) const { return all_from <= key && all_to >= end; }
};

/// The bits of a row's keys in a range; `key` is the tile's first.
__device__ inline unsigned bits_in_range(SeenKeys range, int key) {
  const int first = key + own_lane() % 4 * 2 - range.from;
  const unsigned count = static_cast<unsigned>(max(0, range.to - range.from));
  unsigned bits = 0;
#pragma unroll
  for (int j = 0; j < kKeyFragments; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (static_cast<unsigned>(first + 8 * j + c) < count) bits |= 1u << (2 * j + c);
    }
  }
  return bits;
}

/// Takes away the bits of what key_mask, mask and bias leave out of query t's row, and adds the bias times
/// log2(e) to the scores of the others: to scores(j, c), a reference. Reads nothing where `bits` has none.
template <class Scores>
__device__ unsigned bits_by_masks(const AttentionShape& s, const float* bias, int b, int head, int t, int key,
                                  unsigned bits, Scores&& scores) {
  const Index first = key + own_lane() % 4 * 2;
  const auto start = [&](const Index* strides) {
    return b * strides[0] + head * strides[1] + t * strides[2];
  };
  const bool* of_keys = s.key_mask != nullptr ? s.key_mask + b * s.keys + first : nullptr;
  const bool* of_pairs =
      s.mask != nullptr ? s.mask + start(s.mask_strides) + first * s.mask_strides[3] : nullptr;
  const float* added = bias != nullptr ? bias + start(s.bias_strides) + first * s.bias_strides[3] : nullptr;
#pragma unroll
  for (int j = 0; j < kKeyFragments; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const unsigned bit = 1u << (2 * j + c);
      const int at = 8 * j + c;
      if ((bits & bit) == 0) continue;
      if (of_keys != nullptr && !of_keys[at]) bits &= ~bit;
      if (of_pairs != nullptr && !of_pairs[at * s.mask_strides[3]]) bits &= ~bit;
      if (added == nullptr || (bits & bit) == 0) continue;
      const float value = added[at * s.bias_strides[3]];
      if (value == kNothing) bits &= ~bit;
      scores(j, c) += value * kLog2E;
    }
  }
  return bits;
}

/// The bits of what dropout keeps of a row of kKeyTile keys. `element` is the number of the tile's first. A
/// lane's keys are 16 apart, as the words of a random block are: where groups of elements and tiles
/// of keys begin together, it computes four blocks and uses each word.
__device__ inline unsigned kept_bits(const PhiloxStream& random, std::uint32_t dropped, Index element) {
  unsigned kept = 0;
#pragma unroll
  for (int n = 0; n < 4; ++n) {  // keys 8 (n / 2) + 2 t + n % 2, and 16, 32 and 48 further
    const Index first = element + n / 2 * 8 + own_lane() % 4 * 2 + n % 2;
    const Index block = first / kDropoutGroup * 16 + first % 16;
    const int skipped = static_cast<int>(first / 16 % 4);  // words of other tiles
    const auto bits_of = [&](Index i) {
      const PhiloxBlock words = random.block(i);
      unsigned bits = 0;
#pragma unroll
      for (int w = 0; w < 4; ++w) bits |= (words.word[w] >= dropped ? 1u : 0u) << (4 * w + n);
      return bits;
    };
    unsigned bits = bits_of(block) >> (4 * skipped);
    if (skipped != 0) bits |= bits_of(block + 16) << (16 - 4 * skipped);
    kept |= bits;
  }
  return kept & 0xFFFFu;
}

/// The bits of the keys that a query of this warp sees, from those of its lanes' rows.
__device__ inline unsigned seen_by_warp(unsigned bits) {
  for (int offset = 4; offset < kWarp; offset *= 2) bits |= __shfl_xor_sync(kAllLanes, bits, offset);
  return bits;
}

/// Zeros in a pair of keys, of b in a product over keys, for what is not seen: what nobody sees may be
/// infinite or NaN. `bits` begins with the pair's.
__device__ inline unsigned seen_pair(unsigned pair, unsigned bits) {
  return pair & ((bits & 1u) * 0xFFFFu | (bits >> 1 & 1u) * 0xFFFF0000u);
}

/// Whether rows begin at multiples of 16 bytes.
inline bool has_aligned_rows(const BFloat16* x, const HeadStrides& strides, Index width) {
  return reinterpret_cast<std::uintptr_t>(x) % 16 == 0 && strides.batch % 8 == 0 && strides.row % 8 == 0 &&
         strides.head % 8 == 0 && width % 8 == 0;
}

}  // namespace tapeformer::kernels
