#pragma once

#include <tapeformer/autograd/kernels/cpu/attention_modifiers.h>
#include <tapeformer/autograd/kernels/cpu/attention_scores.h>

#include <algorithm>
#include <cmath>

namespace tapeformer::kernels {

/// What the gradient kernels begin with: weights and gradients of scores, tile by tile, in a thread's memory
/// at the offsets `at_...`.
template <class T, class Scores>
class AttentionDscores {
 public:
  /// The layout gets room for one tile, and for slopes if they are wanted.
  AttentionDscores(const AttentionShape& shape, const AttentionOperands<T>& x, const T* y, const T* log_sum,
                   const T* dy, Slopes slopes, Layout<T>& layout)
      : row_d(leading<T>(shape.key_width)),
        row_e(leading<T>(shape.value_width)),
        row_s(leading<T>(std::min(kKeyBlock, shape.keys))),
        scores(shape, x.weight),
        sees_whole_rows(shape.keys <= kKeyBlock && !shape.is_part),
        s_(shape),
        x_(x),
        y_(y),
        log_sum_(log_sum),
        dy_(dy),
        slopes_(shape.function == ScoreFunction::none ? Slopes::none : slopes) {
    const Index block = std::min(kQueryBlock, shape.queries),
                keys = padded<T>(std::min(kKeyBlock, shape.keys));
    at_queries = layout.take(block * row_d);
    at_dy = layout.take(block * row_e);
    at_keys = layout.take(keys * row_d);
    at_transposed_keys_ = layout.take(padded<T>(shape.key_width) * row_s);
    at_values_ = layout.take(keys * row_e);
    at_transposed_values_ = layout.take(padded<T>(shape.value_width) * row_s);
    at_weights = layout.take(block * row_s);
    at_dscores = layout.take(block * row_s);
    at_slopes = layout.take(slopes_ == Slopes::none ? 0 : block * row_s);
  }

  /// Finds the factors that make the weights of a row add up to one, which exp(score - log_sum) is far from
  /// where the logarithm is rounded away next to a large maximum: where a mask of -1e9, say, covers all of a
  /// row. To be called first; `size` is that of the layout.
  void find_shares(double work, Index size) {
    const Index rows = s_.batch * s_.heads * s_.queries;
    if (x_.bias == nullptr || sees_whole_rows || std::none_of(log_sum_, log_sum_ + rows, is_large)) return;
    struct Shares {};
    T* const shares = thread_memory<Shares, T>(rows);
    std::fill_n(shares, rows, T(1));
    for_units<AttentionDscores, T>(s_.batch * s_.heads, work, size, [&](Index unit, T* memory) {
      for (Index t = 0; t < s_.queries; t += kQueryBlock)
        find_shares({unit / s_.heads, unit % s_.heads, t, std::min(kQueryBlock, s_.queries - t), 0, 0},
                    shares + unit * s_.queries + t, memory);
    });
    shares_ = shares;
  }
  /// The factor of find_shares(), 1 unless it found one.
  T share(Index b, Index head, Index t) const {
    return shares_ != nullptr ? shares_[(b * s_.heads + head) * s_.queries + t] : T(1);
  }

  Index row_d, row_e, row_s;  // distances of packed rows
  Scores scores;
  bool sees_whole_rows;
  Index at_queries = 0, at_dy = 0, at_keys = 0, at_weights = 0, at_dscores = 0, at_slopes = 0;

  /// A query that sees nothing counts as zero, also if it or its output's gradient is NaN.
  bool sees(Index b, Index head, Index t) const {
    return log_sum_[(b * s_.heads + head) * s_.queries + t] != kMinusInfinity<T>;
  }

  /// sum over e of dy y for queries [from, to), which in theory is the sum over the keys of each weight times
  /// its gradient. If a tile holds whole rows, find() computes that sum directly, so that rounding errors
  /// cancel in the scores' gradient, and divides the weights by their sum, since exp(score - log_sum) adds
  /// up to one only within the rounding of large scores.
  void find_deltas(Index b, Index head, Index from, Index to, T* deltas) const {
    for (Index t = from; t < to; ++t) {
      const T* dy = dy_row(b, head, t);
      deltas[t - from] = sees(b, head, t) ? dot_simd(s_.value_width, dy, y_ + (dy - dy_)) : T(0);
    }
  }

  /// For the queries [from, to) of the heads [first, last), which are of one group.
  void pack_keys(Index b, Index first, Index last, Index from, Index to, Index key, Index count,
                 T* memory) const {
    const Index group = first / (s_.heads / s_.groups);
    std::uint8_t seen[kKeyBlock];
    find_seen_keys(s_, x_.bias, b, first, last, from, to, key, count, seen);
    const Index whole = padded<T>(count);
    const auto pack = [&](const T* x, const HeadStrides& strides, Index width, T scale, T* rows, Index row,
                          T* transposed) {
      pack_rows(count, width, x + strides.at(b, key, group), strides.row, seen, scale, rows, row);
      std::fill(rows + count * row, rows + whole * row, T(0));
      transpose_block(whole, width, rows, row, transposed, row_s);
    };
    pack(x_.key, s_.key, s_.key_width, scores.key_scale, memory + at_keys, row_d,
         memory + at_transposed_keys_);
    pack(x_.value, s_.value, s_.value_width, T(1), memory + at_values_, row_e,
         memory + at_transposed_values_);
  }

  void pack_queries(const Tile& tile, T* memory) const {
    std::uint8_t real[kQueryBlock];
    for (Index t = 0; t < tile.rows; ++t) real[t] = sees(tile.b, tile.head, tile.query + t);
    const T* query = x_.query + s_.query.at(tile.b, tile.query, tile.head);
    pack_rows(tile.rows, s_.key_width, query, s_.query.row, real, T(1), memory + at_queries, row_d);
    pack_rows(tile.rows, s_.value_width, dy_row(tile.b, tile.head, tile.query), s_.heads * s_.value_width,
              real, s_.drops ? static_cast<T>(s_.kept_scale) : T(1), memory + at_dy, row_e);
  }

  /// Computes from the packed queries, and the packed keys from column `skipped` on: the weights after
  /// dropout, without its scale (the packed dy includes it); the gradient of their arguments; and slopes.
  void find(const Tile& tile, Index skipped, const T* deltas, DropoutWords& words, T* memory) const {
    T *weights = memory + at_weights, *dscores = memory + at_dscores;
    scores.scores(tile.head, tile.rows, tile.columns, {memory + at_queries, row_d},
                  {memory + at_transposed_keys_ + skipped, row_s}, {weights, row_s});
    modify_scores(s_, x_, tile, weights, row_s, slopes_, memory + at_slopes);
    block_product<T>(tile.rows, tile.columns, s_.value_width, {memory + at_dy, row_e, 1},
                     {memory + at_transposed_values_ + skipped, row_s}, dscores, row_s, false);
    const T* log_sums = log_sum_ + (tile.b * s_.heads + tile.head) * s_.queries + tile.query;
    for (Index t = 0; t < tile.rows; ++t) {
      T *line = weights + t * row_s, *dline = dscores + t * row_s;
      const std::uint32_t* row_words = s_.drops ? words.row(tile, t) : nullptr;
      if (s_.drops) drop(tile.columns, row_words, s_.dropped, dline);
      if (s_.weighting == AttentionWeighting::sigmoid)
        find_sigmoid_row(tile, line, dline);
      else
        find_softmax_row(tile, t, log_sums[t], deltas[t], line, dline);
      if (s_.drops) drop(tile.columns, row_words, s_.dropped, line);
    }
  }

 private:
  const T* dy_row(Index b, Index head, Index t) const {
    return dy_ + ((b * s_.queries + t) * s_.heads + head) * s_.value_width;
  }

  /// True for a logarithm whose rounding error exceeds that of ordinary scores.
  static bool is_large(T log_sum) { return log_sum != kMinusInfinity<T> && std::abs(log_sum) > T(64); }

  /// Finds the shares of a tile's queries, from all keys that they see.
  void find_shares(Tile tile, T* shares, T* memory) const {
    const T* log_sums = log_sum_ + (tile.b * s_.heads + tile.head) * s_.queries + tile.query;
    if (std::none_of(log_sums, log_sums + tile.rows, is_large)) return;
    pack_queries(tile, memory);
    T totals[kQueryBlock] = {};
    const KeyRange range = keys_of(s_, tile.b, tile.query, tile.query + tile.rows);
    for (tile.key = range.from; tile.key < range.to; tile.key += kKeyBlock) {
      tile.columns = std::min(kKeyBlock, range.to - tile.key);
      pack_keys(tile.b, tile.head, tile.head + 1, tile.query, tile.query + tile.rows, tile.key, tile.columns,
                memory);
      T* const lines = memory + at_weights;
      scores.scores(tile.head, tile.rows, tile.columns, {memory + at_queries, row_d},
                    {memory + at_transposed_keys_, row_s}, {lines, row_s});
      modify_scores(s_, x_, tile, lines, row_s);
      for (Index t = 0; t < tile.rows; ++t) {
        const Lanes<T> shift(log_sums[t]);
        totals[t] += sum_simd<T>(
            padded<T>(tile.columns), [&](const Lanes<T>& x) { return exp_lanes(x - shift); },
            lines + t * row_s);
      }
    }
    for (Index t = 0; t < tile.rows; ++t) {
      if (!is_large(log_sums[t])) continue;
      if (x_.sinks != nullptr) totals[t] += std::exp(x_.sinks[tile.head] - log_sums[t]);
      shares[t] = T(1) / totals[t];
    }
  }

  void find_softmax_row(const Tile& tile, Index t, T log_sum, T of_dy, T* line, T* dline) const {
    const Index width = padded<T>(tile.columns);
    const Lanes<T> shift(log_sum == kMinusInfinity<T> ? T(0) : log_sum);
    Lanes<T> product(T(0)), total(T(0));
    for (Index i = 0; i < width; i += kLanes<T>) {
      const Lanes<T> weight = exp_lanes(Lanes<T>::load_unaligned(line + i) - shift);
      product = xsimd::fma(weight, Lanes<T>::load_unaligned(dline + i), product);
      total += weight;
      weight.store_unaligned(line + i);
    }
    T weights = sum_lanes<T>(total);  // zero if no key is visible
    if (x_.sinks != nullptr && weights > T(0)) weights += std::exp(x_.sinks[tile.head] - log_sum);
    const T factor =
        sees_whole_rows && weights > T(0) ? T(1) / weights : share(tile.b, tile.head, tile.query + t);
    const Lanes<T> scale(factor), delta(sees_whole_rows ? sum_lanes<T>(product) * factor : of_dy);
    for (Index i = 0; i < width; i += kLanes<T>) {
      const Lanes<T> weight = Lanes<T>::load_unaligned(line + i) * scale;
      const Lanes<T> dweight = Lanes<T>::load_unaligned(dline + i) - delta;
      weight.store_unaligned(line + i);
      (weight * dweight).store_unaligned(dline + i);
    }
  }

  /// With e = exp(-|z|), w = 1 / (1 + e) or e / (1 + e), and w (1 - w) = e / (1 + e)^2, without 1 - w, which
  /// loses digits.
  void find_sigmoid_row(const Tile& tile, T* line, T* dline) const {
    const Lanes<T> zero(T(0)), one(T(1));
    for (Index i = 0; i < padded<T>(tile.columns); i += kLanes<T>) {
      const Lanes<T> z = Lanes<T>::load_unaligned(line + i), e = exp_lanes(-xsimd::abs(z));
      const Lanes<T> share = one / (one + e), other = e * share;
      xsimd::select(z >= zero, share, other).store_unaligned(line + i);
      (share * other * Lanes<T>::load_unaligned(dline + i)).store_unaligned(dline + i);
    }
  }

  const AttentionShape& s_;
  const AttentionOperands<T>& x_;
  const T *y_, *log_sum_, *dy_, *shares_ = nullptr;
  Slopes slopes_;
  Index at_transposed_keys_ = 0, at_values_ = 0, at_transposed_values_ = 0;
};

}  // namespace tapeformer::kernels
