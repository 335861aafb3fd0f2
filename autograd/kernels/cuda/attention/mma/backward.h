#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/mma/mma.h>
#include <tapeformer/autograd/kernels/cuda/attention/plain/tile.h>

namespace tapeformer::kernels {

// Attention's backward pass on tensor cores. One kernel has tiles of queries and loops over the keys, for
// dquery; the other has tiles of keys and loops over the queries that see them, for dkey and dvalue. Both
// compute scores and their gradients, 7 products instead of the 5 of a single kernel, but neither waits for
// the other, adds to memory that others add to, or needs memory for parts of sums. The rows of scores are the
// block's own rows, for keys too (there scores are transposed), so sums over the moving rows go from one
// product into the next in registers. A third kernel has ranges of distances, and sums the gradient of a
// relative bias in parts.

constexpr int kMoving = kKeyTile;      // rows in shared memory at a time
constexpr Index kPaddedQueries = 128;  // facts of queries are padded to multiples of this

/// The dimensions of a block of kernels for widths up to kWidth.
template <class T, int kWidth>
struct BackwardBlock {
  static constexpr int kBytes = kWidth * sizeof(T);       // of a row
  static constexpr int kRowTiles = kWidth <= 64 ? 2 : 1;  // of 16 rows each, of a warp
  static constexpr int kWarps = kWidth == 128 ? 8 : 4, kThreads = kWarps * kWarp;
  static constexpr int kOwn = kWarps * kRowTiles * 16;  // rows
  static constexpr int kStages =
      kBytes <= (sizeof(T) == 2 ? 256 : 128) ? 2 : 1;   // of moving rows; two while there is room
  static constexpr int kAtOnce = kWidth <= 64 ? 2 : 1;  // blocks of a multiprocessor, by their registers
  static constexpr int kStep = kWidth <= 64 ? 32 : 64;  // moving rows in registers at a time
  static_assert(kStep * kRowTiles == 64, "a lane has 32 pairs of a moving row and an own one at a time");
  static_assert(kPaddedQueries % kOwn == 0 && kPaddedQueries % kMoving == 0, "whole tiles");
};

/// Computed for all queries before the rest, with T rounded up to kPaddedQueries.
struct PreparedQueries {
  Index padded;
  /// [B, H, padded], in the unit of scores. Infinite for rows that see nothing, so that all their weights are
  /// zero. With sigmoid weights zero for the others.
  float* log_sums;
  /// [B, H, padded]: sum over e of dy y, in theory the sum over the keys of each weight times its gradient;
  /// zero with sigmoid weights.
  float* deltas;
  /// [B, H, padded]: factors that make the weights of a row add up to one; null where exp(score - log_sum)
  /// does.
  float* shares;
  SeenKeys* ranges;   // [B, padded]
  JointRange* tiles;  // [B, padded / kMoving]
};

template <class T>
struct MmaGradient : AttentionOperands<T>, AttentionGradients<T> {
  const T* dy;
  HeadStrides dy_strides;
  PreparedQueries prepared;
};

/// A block's shared memory: two kinds of its own rows (queries and dy, or keys and values) and of the moving
/// ones.
template <class T, int kWidth>
struct alignas(16) BackwardShared {
  T own[2][BackwardBlock<T, kWidth>::kOwn * kPitch<kWidth, T>];
  struct alignas(16) Stage {
    T rows[2][kMoving * kPitch<kWidth, T>];
    float log_sums[kMoving], deltas[kMoving], shares[kMoving];  // these of moving queries
    SeenKeys ranges[kMoving];
    JointRange joint;
  } stages[BackwardBlock<T, kWidth>::kStages];
  std::uint16_t kept[kMoving][BackwardBlock<T, kWidth>::kOwn / kKeyTile][4];  // kept_bits() of moving queries
};

constexpr int kDistances = 512;  // neighbouring ones, of a block

/// A block's shared memory for the gradient of a relative bias.
template <class T, int kWidth>
struct RelativeShared : BackwardShared<T, kWidth> {
  using Block = BackwardBlock<T, kWidth>;
  float dscores[Block::kWarps][Block::kRowTiles * 16][Block::kStep + 8];  // rows begin 8 banks apart
  float sums[Block::kWarps][kDistances];
  int positions[Block::kOwn];
};

__device__ inline JointRange of_both(const JointRange& x, const JointRange& y) {
  return {min(x.from, y.from), max(x.to, y.to), max(x.all_from, y.all_from), min(x.all_to, y.all_to)};
}

/// The lane's address of moving rows for add_products().
template <int kWidth>
__device__ const BFloat16* summed_rows(const BFloat16* rows) {
  return rows_by_16(rows, kPitch<kWidth, BFloat16>);
}
template <int kWidth>
__device__ const float* summed_rows(const float* rows) {
  return rows + own_lane() % 4 * 2 * kPitch<kWidth, float> + own_lane() / 4 * 4;
}
/// sums[r][n] += factors of the warp's rows and 8 kFragments moving ones, times columns 8 n of the moving
/// rows; `moving` comes from summed_rows(). With kHides, rows without their bit in `seen` count as zero.
template <bool kHides, int kWidth, int kRowTiles, int kFragments, class T>
__device__ void add_products(float (&sums)[kRowTiles][kWidth / 8][4],
                             const float (&factors)[kRowTiles][kFragments][4], const T* moving,
                             unsigned seen) {
  constexpr int kRowSize = kPitch<kWidth, T>, kStep = kTerms<T> / 8;  // fragments of a product
#pragma unroll
  for (int j = 0; j < kFragments; j += kStep) {
    unsigned a[kRowTiles][1][4];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 2 * kStep; ++i)
        put_pair<T>(a[r], i / 2, i % 2, factors[r][j + i / 2][i % 2 * 2],
                    factors[r][j + i / 2][i % 2 * 2 + 1]);
    }
    if constexpr (std::is_same_v<T, float>) {
      const auto bits = [&](int c) { return !kHides || (seen >> (2 * j + c) & 1u) != 0 ? ~0u : 0u; };
      const float* const low = moving + j * 8 * kRowSize;
      add_rows_tf32(
          sums, [&](int r) -> const auto& { return a[r][0]; }, low, low + kRowSize, bits(0), bits(1));
    } else {
#pragma unroll
      for (int n = 0; n < kWidth / 8; n += 2) {
        unsigned b[4];
        load_matrix_x4_transposed(b, moving + j * 8 * kRowSize + n * 8);
        if (kHides) {
#pragma unroll
          for (int i = 0; i < 4; ++i) b[i] = seen_pair(b[i], seen >> (2 * (j + i % 2)));
        }
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          mma_bf16(sums[r][n], a[r][0], b[0], b[1]);
          mma_bf16(sums[r][n + 1], a[r][0], b[2], b[3]);
        }
      }
    }
  }
}

/// As add_products(), hiding moving rows only if the warp does not see all of them.
template <int kWidth, int kRowTiles, int kFragments, class T>
__device__ void add_seen_products(float (&sums)[kRowTiles][kWidth / 8][4],
                                  const float (&factors)[kRowTiles][kFragments][4], const T* moving,
                                  unsigned seen) {
  constexpr unsigned kAll = (1u << (2 * kFragments)) - 1;
  if (__all_sync(kAllLanes, (seen & kAll) == kAll) != 0)
    add_products<false, kWidth>(sums, factors, moving, seen);
  else
    add_products<true, kWidth>(sums, factors, moving, seen);
}

/// Replaces scores, less log_sum, by weights.
template <bool kMasks, int kRowTiles, int kFragments>
__device__ void find_weights(bool is_sigmoid, float (&scores)[kRowTiles][kFragments][4]) {
  const auto replace = [&](const auto& weight) {
#pragma unroll
    for (int i = 0; i < kRowTiles * kFragments * 4; ++i) {
      float& score = scores[i / (kFragments * 4)][i / 4 % kFragments][i % 4];
      score = weight(score);
    }
  };
  is_sigmoid ? replace(sigmoid_approx) : replace(exponential<kMasks>);
}
/// Multiplies the gradients of weights, less delta, by the weights' derivatives. A negative weight is one
/// that dropout has dropped. If some pairs are not visible, the gradients of weights of zero may be anything.
template <int kRowTiles, int kFragments>
__device__ void multiply_weights(bool is_sigmoid, bool all_visible,
                                 const float (&weights)[kRowTiles][kFragments][4],
                                 float (&gradients)[kRowTiles][kFragments][4]) {
  const auto replace = [&](const auto& gradient_of) {
#pragma unroll
    for (int i = 0; i < kRowTiles * kFragments * 4; ++i) {
      const int r = i / (kFragments * 4), j = i / 4 % kFragments;
      gradients[r][j][i % 4] = gradient_of(weights[r][j][i % 4], gradients[r][j][i % 4]);
    }
  };
  if (is_sigmoid) replace([](float weight, float gradient) { return (1.0f - fabsf(weight)) * gradient; });
  if (all_visible)
    replace([](float weight, float gradient) { return weight * gradient; });
  else
    replace([](float weight, float gradient) { return weight != 0 ? fabsf(weight) * gradient : 0.0f; });
}

/// Rounds what this thread has loaded, with round_tile(): a stage, and at first the block's own rows.
template <class T, int kWidth>
__device__ void round_loaded(BackwardShared<T, kWidth>& shared, int stage, bool is_first) {
  using Block = BackwardBlock<T, kWidth>;
  for (int i = 0; i < 2; ++i) {
    if (is_first) round_tile<Block::kOwn, kWidth, Block::kThreads>(shared.own[i]);
    round_tile<kMoving, kWidth, Block::kThreads>(shared.stages[stage].rows[i]);
  }
}

/// The tiles of keys and values in [begin, end) that move past a block's queries. The constructor begins to
/// load the first of them and the block's rows of queries and dy.
template <class T, int kWidth>
class MovingKeys {
 public:
  __device__ MovingKeys(const AttentionShape& s, const MmaGradient<T>& x, BackwardShared<T, kWidth>& shared,
                        int b, int head, int query, int begin, int end)
      : s_(s), shared_(shared), begin_(begin), end_(end) {
    const int group = head / static_cast<int>(s.heads / s.groups);
    const int queries = min(Block::kOwn, static_cast<int>(s.queries) - query);
    load_tile<Block::kOwn, kWidth, Block::kThreads>(shared.own[0], x.query + s.query.at(b, query, head),
                                                    s.query.row, queries, static_cast<int>(s.key_width));
    load_tile<Block::kOwn, kWidth, Block::kThreads>(shared.own[1], x.dy + x.dy_strides.at(b, query, head),
                                                    x.dy_strides.row, queries,
                                                    static_cast<int>(s.value_width));
    key_ = own_place<kWidth>(x.key + s.key.at(b, begin, group), s.key.row);
    value_ = own_place<kWidth>(x.value + s.value.at(b, begin, group), s.value.row);
    if (begin < end) load(begin, 0);
  }

  /// Calls f(key, moving) for each tile, whose first key is `key`.
  template <class F>
  __device__ void for_each(F&& f) {
    int stage = 0;
    for (int key = begin_; key < end_; key += kMoving) {
      copy_async_wait<0>();
      round_loaded<T, kWidth>(shared_, stage, key == begin_);
      __syncthreads();
      if (Block::kStages == 2 && key + kMoving < end_) load(key + kMoving, 1 - stage);
      f(key, shared_.stages[stage]);
      if (Block::kStages == 2) {
        stage = 1 - stage;
      } else if (key + kMoving < end_) {
        __syncthreads();
        load(key + kMoving, 0);
      }
    }
    copy_async_wait<0>();
  }

 private:
  using Block = BackwardBlock<T, kWidth>;
  __device__ void load(int key, int stage) {
    const int keys = static_cast<int>(s_.keys);
    auto& to = shared_.stages[stage];
    load_next_tile<kMoving, kWidth, Block::kThreads>(to.rows[0], key_, s_.key.row, keys - key,
                                                     static_cast<int>(s_.key_width));
    load_next_tile<kMoving, kWidth, Block::kThreads>(to.rows[1], value_, s_.value.row, keys - key,
                                                     static_cast<int>(s_.value_width));
    copy_async_commit();
  }

  const AttentionShape& s_;
  BackwardShared<T, kWidth>& shared_;
  const T *key_, *value_;  // own places
  int begin_, end_;
};

/// A lane's own queries: first + g + 8 i of a head.
template <int kRows>
struct OwnQueries {
  int b, head, first;
  float log_sums[kRows], deltas[kRows], factors[kRows];  // factors of dweights, and the shares in deltas too
  JointRange joint;                                      // of the warp
};

/// range(t): the keys of query t to take into account.
template <int kRows, class T, MmaOptions kOptions, class RangeAt>
__device__ OwnQueries<kRows> own_queries(const AttentionShape& s, const MmaGradient<T>& x,
                                         const ScoreFactors<kOptions>& by, int b, int head, int first,
                                         RangeAt&& range) {
  OwnQueries<kRows> own;
  own.b = b, own.head = head, own.first = first;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int t = first + own_lane() / 4 + 8 * i;
    const Index at = (Index{b} * s.heads + head) * x.prepared.padded + t;
    const float share =
        ScoreFactors<kOptions>::kMasks && x.prepared.shares != nullptr ? x.prepared.shares[at] : 1.0f;
    own.log_sums[i] = x.prepared.log_sums[at], own.deltas[i] = share * x.prepared.deltas[at];
    own.factors[i] = share * by.kept_scale;
    if (t < s.queries) own.joint.add(range(t));
  }
  own.joint.join();
  return own;
}

/// Calls add(row, dscores, seen) for the steps of a tile of moving keys, kStep of them from row `row` of the
/// tile on: the gradients of scores, or of biases, and the bits of the keys that the warp's queries see.
/// `key` is the tile's first; `of_own` are rows of queries and of dy, `of_moving` of keys and of values.
template <GradientOf kOf, int kWidth, class T, MmaOptions kOptions, int kRows, int kOwn, int kMove,
          class RangeAt, class Add>
__device__ void for_each_dscores(const AttentionShape& s, const MmaGradient<T>& x,
                                 const ScoreFactors<kOptions>& by, const OwnQueries<kRows>& own,
                                 const T (&of_own)[2][kOwn], const T (&of_moving)[2][kMove], int key,
                                 RangeAt&& range, Add&& add) {
  constexpr bool kMasks = kOptions != MmaOptions::none, kModifies = kOptions == MmaOptions::modifiers;
  constexpr int kRowTiles = kRows / 2, kFragments = BackwardBlock<T, kWidth>::kStep / 8;
  constexpr int kRowSize = kPitch<kWidth, T>;
  const int b = own.b, head = own.head, first_row = own_warp() * kRowTiles * 16;
  const bool is_whole = !by.has_masks && own.joint.sees_all(key, key + kMoving) &&
                        (!kModifies || own.first + 8 * kRows <= s.queries);  // all have positions
  // bits_of_rows, while there are no scores in registers
  std::uint64_t bits = ~std::uint64_t{0}, kept = 0;
  if (!is_whole) {
    bits = bits_of_rows<kRows>(own.first, [&](int t) {
      const unsigned in_range = bits_in_range(range(t), key);
      return by.has_masks ? bits_by_masks(s, b, head, t, key, in_range) : in_range;
    });
  }
  if (by.drops) {
    const PhiloxStream random = s.dropout.settled();
    kept = bits_of_rows<kRows>(own.first, [&](int t) {
      return kept_bits(random, s.dropped, ((Index{b} * s.heads + head) * s.queries + t) * s.keys + key);
    });
  }
#pragma unroll
  for (int row = 0; row < kMoving; row += 8 * kFragments, bits >>= 2 * kFragments, kept >>= 2 * kFragments) {
    float weights[kRowTiles][kFragments][4], dscores[kRowTiles][kFragments][4];
    const auto weight = [&](int i, int j, int c) -> float& { return weights[i / 2][j][i % 2 * 2 + c]; };
    const auto dscore = [&](int i, int j, int c) -> float& { return dscores[i / 2][j][i % 2 * 2 + c]; };
    multiply_rows<kWidth>(weights, rows_by_16(of_own[0] + first_row * kRowSize, kRowSize),
                          rows_by_8(of_moving[0] + row * kRowSize, kRowSize));
    multiply_rows<kWidth>(dscores, rows_by_16(of_own[1] + first_row * kRowSize, kRowSize),
                          rows_by_8(of_moving[1] + row * kRowSize, kRowSize));
    const auto for_each = [&](const auto& f) {
#pragma unroll
      for (int n = 0; n < kRows * kFragments * 2; ++n) f(n / (2 * kFragments), n / 2 % kFragments, n % 2);
    };
    if (by.drops)
      for_each_without<kRows, kFragments>(kept, [&](int i, int j, int c) { dscore(i, j, c) = 0; });
    for_each([&](int i, int j, int c) {
      float& d = dscore(i, j, c);
      d = (kMasks ? own.factors[i] * d : d) - own.deltas[i];
    });
    if constexpr (kModifies) {
      const float parameter = parameter_of(s, x.parameter, head), scale = static_cast<float>(s.scale);
      if constexpr (kOf == GradientOf::score)
        apply_function(s, parameter, scale, weights, dscores);
      else
        apply_function(s, parameter, scale, weights);
      if (x.relative != nullptr)
        add_relative_biases<kRows, kFragments>(s, x.relative, b, head, own.first, key + row, bits, weight);
    }
    if (kMasks && x.bias != nullptr) {
      if (!kModifies) scale_all(weights, by.scale);
      bits = add_biases<kRows, kFragments>(s, x.bias, b, head, own.first, key + row, bits, weight);
    }
    for_each([&](int i, int j, int c) { weight(i, j, c) = weight(i, j, c) * by.factor - own.log_sums[i]; });
    find_weights<kMasks>(by.is_sigmoid, weights);
    unsigned seen = kAllSeen;
    if (!is_whole) {
      for_each_without<kRows, kFragments>(bits, [&](int i, int j, int c) { weight(i, j, c) = 0; });
      seen = seen_by_warp(bits);
    }
    multiply_weights(by.is_sigmoid, is_whole && !kMasks, weights, dscores);
    add(row, dscores, seen);
  }
}

/// Writes the warp's sums to `rows` rows that begin at `at`.
template <int kWidth, class T, int kRowTiles>
__device__ void put_sums(const Write<T>& to, Index at, Index stride, int rows, Index width, float scale,
                         const float (&sums)[kRowTiles][kWidth / 8][4]) {
  if (!to) return;
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const int row = own_lane() / 4 + 8 * i;
    if (row >= rows) continue;
    const Write<T> to_row{to.to + at + row * stride, to.add};
    for_each_pack_of_sums<T>(sums[i / 2], i % 2, scale, static_cast<int>(width),
                             [&](int column, const auto& values) { put_pack(to_row, column, values); });
  }
}

/// The requested gradients, from the prepared facts.
template <class T>
void attention_mma_dquery(Cuda on, const AttentionShape& s, const MmaGradient<T>& x);
template <class T>
void attention_mma_dkey(Cuda on, const AttentionShape& s, const MmaGradient<T>& x);
template <class T>
void attention_mma_drelative(Cuda on, const AttentionShape& s, const MmaGradient<T>& x,
                             const Write<float>& drelative);

}  // namespace tapeformer::kernels
