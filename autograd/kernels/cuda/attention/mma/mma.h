#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/mma/tiles.h>
#include <tapeformer/autograd/kernels/cuda/attention/modifiers.h>
#include <tapeformer/autograd/kernels/cuda/unary_bf16.h>
#include <tapeformer/autograd/kernels/dropout.h>

#include <algorithm>

namespace tapeformer::kernels {

// Shared by attention on tensor cores, forward and backward. A row of the scores belongs to the four lanes
// of a quad, which have the same g = lane / 4; of each 8 keys a lane has two neighbours, t = lane % 4 (see
// tensor_core.h). Decisions about kKeyTile keys of a row are bits: bit 2 j + c is for key 8 j + 2 t + c of
// the tile, which is element [j][c] of the row's fragments.

constexpr int kKeyTile = 64, kKeyFragments = kKeyTile / 8;
constexpr unsigned kAllSeen = 0xFFFFu;
constexpr float kLn2 = 0.693147180559945309f;
/// The unit of scores, in nats. It is a bit where they are only products. Masks are added in nats: in bits a
/// mask of the lowest f32 overflows, and one of -1e9 is rounded to another value than in log_sum.
template <bool kMasks>
constexpr float kUnit = kMasks ? 1.0f : kLn2;
/// The exponential of a score in that unit.
template <bool kMasks>
__device__ float exponential(float score) {
  return exp2_approx(kMasks ? score * kLog2E : score);
}
constexpr float kNothing = kMinusInfinity<float>;  // the score of a masked pair

template <int kRowTiles, int kFragments>
__device__ void scale_all(float (&scores)[kRowTiles][kFragments][4], float scale) {
#pragma unroll
  for (int i = 0; i < kRowTiles * kFragments * 4; ++i)
    scores[i / (kFragments * 4)][i / 4 % kFragments][i % 4] *= scale;
}

/// The keys that a query may see at most.
struct SeenKeys {
  int from = 0, to = 0;
};

/// The keys of query t, none if there is no such query.
__device__ inline SeenKeys range_of(const AttentionShape& s, int b, int t) {
  if (t >= static_cast<int>(s.queries)) return {};
  const Index row = Index{b} * s.queries + t;
  const int keys = static_cast<int>(s.keys);
  return {s.key_from != nullptr ? max(0, s.key_from[row]) : 0,
          s.key_to != nullptr ? min(keys, s.key_to[row]) : keys};
}

/// The keys of several queries: none of them sees a key outside [from, to), and all of them see those in
/// [all_from, all_to).
struct JointRange {
  int from = std::numeric_limits<int>::max(), to = 0, all_from = 0, all_to = std::numeric_limits<int>::max();

  /// Adds a query. Missing queries must be left out, not added as empty.
  __device__ void add(SeenKeys range) {
    if (range.from < range.to) from = min(from, range.from), to = max(to, range.to);
    all_from = max(all_from, range.from), all_to = min(all_to, range.to);
  }
  /// Joins the ranges of all lanes.
  __device__ void join() {
    from = least_of_warp(from), to = most_of_warp(to);
    all_from = most_of_warp(all_from), all_to = least_of_warp(all_to);
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

/// The bits of those keys of `bits` that key_mask and mask keep in query t's row.
__device__ inline unsigned bits_by_masks(const AttentionShape& s, int b, int head, int t, int key,
                                         unsigned bits) {
  const Index first = key + own_lane() % 4 * 2;
  const auto take_away = [&](const bool* mask, Index stride) {
#pragma unroll
    for (int i = 0; i < 2 * kKeyFragments; ++i) {
      if ((bits >> i & 1u) != 0 && !mask[(8 * (i / 2) + i % 2) * stride]) bits &= ~(1u << i);
    }
  };
  if (s.key_mask != nullptr) take_away(s.key_mask + b * s.keys + first, 1);
  if (s.mask != nullptr) {
    const Index* const strides = s.mask_strides;
    take_away(s.mask + b * strides[0] + head * strides[1] + t * strides[2] + first * strides[3], strides[3]);
  }
  return bits;
}

/// 16 bits for each of a lane's kRows rows, of(t) for query t: 8 apart from `first` + g on. In a loop, so
/// that it takes few of the registers that hold sums and scores.
template <int kRows, class Of>
__device__ std::uint64_t bits_of_rows(int first, Of&& of) {
  std::uint64_t bits = 0;
#pragma unroll 1
  for (int row = 0; row < kRows; ++row)
    bits |= std::uint64_t{of(anew(first) + own_lane() / 4 + 8 * row)} << (16 * row);
  return bits;
}
/// Calls f(row, j, c) for the scores that have no bit in bits_of_rows(): element [j][c] of a lane's row, of
/// kFragments times 8 keys.
template <int kRows, int kFragments = kKeyFragments, class F>
__device__ void for_each_without(std::uint64_t bits, F&& f) {
#pragma unroll
  for (int i = 0; i < kRows * 2 * kFragments; ++i) {
    const int row = i / (2 * kFragments), at = i % (2 * kFragments);
    if ((bits >> (16 * row + at) & 1u) == 0) f(row, at / 2, at % 2);
  }
}

/// Adds biases to the scores(row, j, c), references, that have a bit in bits_of_rows(); `first`
/// is the first row's query, `key` the first of kFragments times 8 keys. Returns the bits that biases keep.
template <int kRows, int kFragments = kKeyFragments, class Scores>
__device__ std::uint64_t add_biases(const AttentionShape& s, const float* bias, int b, int head, int first,
                                    int key, std::uint64_t bits, Scores&& scores) {
  const Index* const strides = s.bias_strides;
  bias += b * strides[0] + head * strides[1] + (key + own_lane() % 4 * 2) * strides[3];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const float* const of_row = bias + (first + own_lane() / 4 + 8 * row) * strides[2];
#pragma unroll
    for (int i = 0; i < 2 * kFragments; ++i) {
      const std::uint64_t bit = std::uint64_t{1} << (16 * row + i);
      const float added = (bits & bit) != 0 ? of_row[(8 * (i / 2) + i % 2) * strides[3]] : kNothing;
      if (added == kNothing) bits &= ~bit;
      scores(row, i / 2, i % 2) += added;
    }
  }
  return bits;
}

/// Adds a relative bias as add_biases() does; it keeps all bits.
template <int kRows, int kFragments = kKeyFragments, class Scores>
__device__ void add_relative_biases(const AttentionShape& s, const float* relative, int b, int head,
                                    int first, int key, std::uint64_t bits, Scores&& scores) {
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const int query = first + own_lane() / 4 + 8 * row;
    const float* const of_row = relative_row(s, relative, b, head, query) + key + own_lane() % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2 * kFragments; ++i) {
      if ((bits >> (16 * row + i) & 1u) != 0) scores(row, i / 2, i % 2) += of_row[8 * (i / 2) + i % 2];
    }
  }
}

/// tanh x = 1 - 2 / (1 + exp 2 x), and so values within 4e-7 c.
template <>
struct Bf16Form<ScoreFunctor<ScoreFunction::softcap>> {
  __device__ static float value(float score, float c) {
    return fma(-2.0f * c, reciprocal_approx(1.0f + exp2_approx(2.0f * kLog2E / c * score)), c);
  }
  __device__ static ScoreSlopes<float> slopes(float score, float c, float value) {
    const float one = 1.0f / c, t = one * value, slope = fma(-t, t, 1.0f);  // one division for all scores
    return {slope, fma(-one * score, slope, t)};
  }
};

/// Replaces scores, times `scale`, by their function, and multiplies `gradients`, if there are any, by its
/// slopes.
template <int kRowTiles, int kFragments, class... Gradients>
__device__ void apply_function(const AttentionShape& s, float parameter, float scale,
                               float (&scores)[kRowTiles][kFragments][4], Gradients&... gradients) {
  with_function(s.function, [&](auto function) {
    using Function = Bf16Form<decltype(function)>;
#pragma unroll
    for (int i = 0; i < kRowTiles * kFragments * 4; ++i) {
      const int r = i / (kFragments * 4), j = i / 4 % kFragments;
      float& score = scores[r][j][i % 4];
      const float before = scale * score;
      score = Function::value(before, parameter);
      ((gradients[r][j][i % 4] *= Function::slopes(before, parameter, score).by_score), ...);
    }
  });
}

__device__ inline float sigmoid_approx(float score) {
  return reciprocal_approx(1.0f + exp2_approx(-kLog2E * score));
}

/// The bits of a row of kKeyTile keys that dropout keeps. `element` is the number of the tile's first. A
/// lane's keys are 16 apart, as the words of a random block are: if groups of elements and tiles of keys
/// begin together, it computes four blocks and uses each word.
__device__ inline unsigned kept_bits(const PhiloxStream& random, std::uint32_t dropped, Index element) {
  unsigned kept = 0;
#pragma unroll
  for (int n = 0; n < 4; ++n) {  // keys 8 (n / 2) + 2 t + n % 2, and 16, 32 and 48 more
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
__device__ inline unsigned seen_by_warp(std::uint64_t of_rows) {
  unsigned bits = static_cast<unsigned>(of_rows) | static_cast<unsigned>(of_rows >> 32);
  bits = (bits | bits >> 16) & kAllSeen;
  for (int offset = 4; offset < kWarp; offset *= 2) bits |= __shfl_xor_sync(kAllLanes, bits, offset);
  return bits;
}

/// Clears unseen keys of a pair, of b in a product over keys: they may be infinite or NaN. `bits` begins with
/// the bits of the pair.
__device__ inline unsigned seen_pair(unsigned pair, unsigned bits) {
  return pair & ((bits & 1u) * 0xFFFFu | (bits >> 1 & 1u) * 0xFFFF0000u);
}

/// The options that kernels are compiled with: the ranges of keys alone, masks of pairs and dropout as well,
/// or a function of the scores, a relative bias and sigmoid weights as well.
enum class MmaOptions { none, masks, modifiers };

template <class T>
MmaOptions options_of(const AttentionShape& s, const AttentionOperands<T>& x) {
  if (changes_pairs(s, x)) return MmaOptions::modifiers;
  const bool masks = s.key_mask != nullptr || s.mask != nullptr || x.bias != nullptr || s.drops;
  return masks ? MmaOptions::masks : MmaOptions::none;
}
/// The masks, dropout and factors of scores, as far as the options of a kernel allow any.
template <MmaOptions kOptions>
struct ScoreFactors {
  static constexpr bool kMasks = kOptions != MmaOptions::none, kModifies = kOptions == MmaOptions::modifiers;
  __device__ ScoreFactors(const AttentionShape& s, const float* bias)
      : drops(kMasks && s.drops),
        has_masks(kMasks && (s.key_mask != nullptr || s.mask != nullptr || bias != nullptr)),
        is_sigmoid(kModifies && s.weighting == AttentionWeighting::sigmoid),
        scale(static_cast<float>(s.scale) * (kMasks ? 1.0f : kLog2E)),
        factor(kModifies || (kMasks && bias != nullptr) ? 1.0f : scale),
        kept_scale(drops ? static_cast<float>(s.kept_scale) : 1.0f) {}
  bool drops, has_masks, is_sigmoid;
  float scale;   // of products, which gives scores in their unit
  float factor;  // of what biases have been added to, if there are any
  float kept_scale;
};

/// Calls f(std::integral_constant<MmaOptions, kOptions>).
template <class F>
void with_options(MmaOptions options, F&& f) {
  if (options == MmaOptions::none)
    f(std::integral_constant<MmaOptions, MmaOptions::none>{});
  else if (options == MmaOptions::masks)
    f(std::integral_constant<MmaOptions, MmaOptions::masks>{});
  else
    f(std::integral_constant<MmaOptions, MmaOptions::modifiers>{});
}

/// Calls f(std::integral_constant<int, kWidth>) for the least kWidth that holds both widths.
template <class T, class F>
void with_width(const AttentionShape& s, F&& f) {
  const Index width = std::max(s.key_width, s.value_width);
  if (width <= 32) {
    f(std::integral_constant<int, 32>{});
  } else if (width <= 64) {
    f(std::integral_constant<int, 64>{});
  } else if (width <= 128) {
    f(std::integral_constant<int, 128>{});
  } else if constexpr (kWidestHead<T> > 128) {
    f(std::integral_constant<int, 256>{});
  }
}

}  // namespace tapeformer::kernels
