#include <tapeformer/autograd/kernels/cpu/attention_scores.h>

#include <algorithm>
#include <cmath>

namespace tapeformer::kernels {
namespace {

/// to = scale * rows; rows of `to` are `to_row` apart.
template <class T>
void put_rows(Index count, Index width, const T* rows, Index row, T scale, Write<T> to, Index to_row) {
  const Lanes<T> factor(scale);
  for (Index i = 0; to && i < count; ++i) {
    write_simd(
        0, width, Write<T>{to.to + i * to_row, to.add}, [&](const Lanes<T>& x) { return x * factor; },
        rows + i * row);
  }
}

/// A gradient, beginning at one row of one head.
template <class T>
Write<T> part_of(Write<T> gradient, const HeadStrides& strides, Index b, Index row, Index head) {
  return {gradient ? gradient.to + strides.at(b, row, head) : nullptr, gradient.add};
}

/// A unit is one group of heads and some blocks of keys, whose gradients it sums over all queries. If a group
/// is cut into several units, each sums the queries' gradients separately; they are added in order at the
/// end.
/// Source:  Dao 2023, arXiv:2307.08691, algorithm 2
template <class T, class Scores>
class AttentionBackward {
 public:
  AttentionBackward(const AttentionShape& shape, const AttentionOperands<T>& x, const T* y, const T* log_sum,
                    const T* dy, const AttentionGradients<T>& to)
      : s_(shape),
        x_(x),
        scores_(shape, x.weight),
        y_(y),
        log_sum_(log_sum),
        dy_(dy),
        to_(to),
        heads_(shape.heads / shape.groups),
        row_d_(leading<T>(shape.key_width)),
        row_e_(leading<T>(shape.value_width)),
        row_s_(leading<T>(std::min(kKeyBlock, shape.keys))) {
    const bool uneven = s_.key_from != nullptr || s_.key_to != nullptr;
    pieces_ = pieces_of(s_.batch * s_.groups, uneven, blocks_of(s_.keys, kKeyBlock));
    sees_whole_rows_ = s_.keys <= kKeyBlock;
    const Index block = std::min(kQueryBlock, s_.queries), keys = padded<T>(std::min(kKeyBlock, s_.keys));
    Layout<T> layout;
    at_deltas_ = layout.take(heads_ * s_.queries);
    at_dqueries_ = layout.take(pieces_ == 1 ? heads_ * s_.queries * row_d_ : 0);
    at_queries_ = layout.take(block * row_d_);
    at_dy_ = layout.take(block * row_e_);
    at_keys_ = layout.take(keys * row_d_);
    at_transposed_keys_ = layout.take(padded<T>(s_.key_width) * row_s_);
    at_values_ = layout.take(keys * row_e_);
    at_transposed_values_ = layout.take(padded<T>(s_.value_width) * row_s_);
    at_dkeys_ = layout.take(keys * row_d_);
    at_dvalues_ = layout.take(keys * row_e_);
    at_scores_ = layout.take(block * row_s_);
    at_dweights_ = layout.take(block * row_s_);
    memory_size_ = layout.size();
  }

  void run() {
    const Index groups = s_.batch * s_.groups, units = pieces_ * groups;
    struct Partial {};
    const Index queries_size = pieces_ == 1 ? 0 : units * heads_ * s_.queries * row_d_;
    partial_dquery_ = thread_memory<Partial, T>(queries_size + units * heads_ * row_d_);
    partial_dweight_ = partial_dquery_ + queries_size;
    const double work = static_cast<double>(s_.batch * s_.heads * s_.queries * s_.keys) *
                        static_cast<double>(3 * s_.key_width + 2 * s_.value_width) / 8;
    for_units<AttentionBackward, T>(units, work, memory_size_, [&](Index unit, T* memory) {
      run_unit(unit % groups / s_.groups, unit % s_.groups, unit / groups, memory);
    });
    if (pieces_ > 1 && to_.dquery) add_partial_dqueries();
    if (to_.dweight) add_partial_dweights();
  }

 private:
  /// One unit's sums for the gradients of head r's queries and weight.
  T* partial_dquery(Index b, Index group, Index piece, Index r) const {
    return partial_dquery_ +
           (((piece * s_.batch + b) * s_.groups + group) * heads_ + r) * s_.queries * row_d_;
  }
  T* partial_dweight(Index b, Index group, Index piece, Index r) const {
    return partial_dweight_ + (((piece * s_.batch + b) * s_.groups + group) * heads_ + r) * row_d_;
  }
  /// A query that sees nothing counts as zero, also if it or its output's gradient is NaN.
  bool sees(Index b, Index head, Index t) const {
    return log_sum_[(b * s_.heads + head) * s_.queries + t] != kMinusInfinity<T>;
  }
  const T* dy_row(Index b, Index head, Index t) const {
    return dy_ + ((b * s_.queries + t) * s_.heads + head) * s_.value_width;
  }

  void run_unit(Index b, Index group, Index piece, T* memory) const {
    T* dqueries = pieces_ == 1 ? memory + at_dqueries_ : partial_dquery(b, group, piece, 0);
    std::fill(dqueries, dqueries + heads_ * s_.queries * row_d_, T(0));
    T* dweight = partial_dweight(b, group, piece, 0);
    std::fill(dweight, dweight + heads_ * row_d_, T(0));
    for (Index r = 0; r < heads_ && !sees_whole_rows_; ++r)
      find_deltas(b, group * heads_ + r, memory + at_deltas_ + r * s_.queries);

    DropoutWords words(s_);
    const KeyRange all = keys_of(s_, b, 0, s_.queries);
    for (Index blocks = blocks_of(s_.keys, kKeyBlock), block = blocks * piece / pieces_;
         block < blocks * (piece + 1) / pieces_; ++block) {
      const Index key = block * kKeyBlock, count = std::min(kKeyBlock, s_.keys - key);
      std::fill(memory + at_dkeys_, memory + at_dkeys_ + count * row_d_, T(0));
      std::fill(memory + at_dvalues_, memory + at_dvalues_ + count * row_e_, T(0));
      if (all.from < key + count && all.to > key) {
        pack_keys(b, group, key, count, memory);
        for (Index r = 0; r < heads_; ++r) {
          T* dquery = dqueries + r * s_.queries * row_d_;
          run_head(b, group * heads_ + r, r, key, count, words, dquery, dweight + r * row_d_, memory);
        }
      }
      put_rows(count, s_.key_width, memory + at_dkeys_, row_d_, T(1),
               part_of(to_.dkey, s_.key, b, key, group), s_.key.row);
      put_rows(count, s_.value_width, memory + at_dvalues_, row_e_, T(1),
               part_of(to_.dvalue, s_.value, b, key, group), s_.value.row);
    }
    for (Index r = 0; r < heads_ && pieces_ == 1; ++r) {
      put_rows(s_.queries, s_.key_width, dqueries + r * s_.queries * row_d_, row_d_, scores_.query_scale,
               part_of(to_.dquery, s_.query, b, 0, group * heads_ + r), s_.query.row);
    }
  }

  /// sum over e of dy y, which in theory is the sum over the keys of each weight times its gradient. If a
  /// tile holds whole rows it computes that sum directly, so that rounding errors cancel in the scores'
  /// gradient, and divides the weights by their sum, since exp(score - log_sum) adds up to one only within
  /// the rounding of large scores.
  void find_deltas(Index b, Index head, T* deltas) const {
    const auto product = [](const Lanes<T>& x, const Lanes<T>& y) { return x * y; };
    for (Index t = 0; t < s_.queries; ++t) {
      const T* dy = dy_row(b, head, t);
      deltas[t] = sees(b, head, t) ? sum_simd<T>(s_.value_width, product, dy, y_ + (dy - dy_)) : T(0);
    }
  }

  void pack_keys(Index b, Index group, Index key, Index count, T* memory) const {
    std::uint8_t seen[kKeyBlock];
    find_seen_keys(s_, x_.bias, b, group * heads_, (group + 1) * heads_, 0, s_.queries, key, count, seen);
    const Index whole = padded<T>(count);
    const auto pack = [&](const T* from, const HeadStrides& strides, Index width, T* rows, Index row,
                          T* transposed) {
      pack_rows(count, width, from + strides.at(b, key, group), strides.row, seen, T(1), rows, row);
      std::fill(rows + count * row, rows + whole * row, T(0));
      transpose_block(whole, width, rows, row, transposed, row_s_);
    };
    pack(x_.key, s_.key, s_.key_width, memory + at_keys_, row_d_, memory + at_transposed_keys_);
    pack(x_.value, s_.value, s_.value_width, memory + at_values_, row_e_, memory + at_transposed_values_);
  }

  void run_head(Index b, Index head, Index r, Index key, Index count, DropoutWords& words, T* dquery,
                T* dweight, T* memory) const {
    for (Index t = 0; t < s_.queries; t += kQueryBlock) {
      const Index end = std::min(s_.queries, t + kQueryBlock);
      const KeyRange range = keys_of(s_, b, t, end);
      const Index low = std::max(range.from, key), high = std::min(range.to, key + count);
      if (low >= high) continue;
      const Index skipped = (low - key) / kLanes<T> * kLanes<T>;
      const Tile tile{b, head, t, end - t, key + skipped, high - key - skipped};
      pack_queries(tile, memory);
      find_dscores(tile, skipped, memory + at_deltas_ + r * s_.queries + t, words, memory);
      T *dkeys = memory + at_dkeys_ + skipped * row_d_, *dvalues = memory + at_dvalues_ + skipped * row_e_;
      if (to_.dvalue) {
        block_product<T>(tile.columns, s_.value_width, tile.rows, {memory + at_scores_, 1, row_s_},
                         {memory + at_dy_, row_e_}, dvalues, row_e_, true);
      }
      scores_.gradients(head, tile.rows, tile.columns, {memory + at_dweights_, row_s_},
                        {memory + at_queries_, row_d_}, {memory + at_keys_ + skipped * row_d_, row_d_},
                        {dquery + t * row_d_, row_d_}, {dkeys, row_d_}, dweight);
    }
  }

  void pack_queries(const Tile& tile, T* memory) const {
    std::uint8_t real[kQueryBlock];
    for (Index t = 0; t < tile.rows; ++t) real[t] = sees(tile.b, tile.head, tile.query + t);
    const T* query = x_.query + s_.query.at(tile.b, tile.query, tile.head);
    pack_rows(tile.rows, s_.key_width, query, s_.query.row, real, scores_.query_scale, memory + at_queries_,
              row_d_);
    pack_rows(tile.rows, s_.value_width, dy_row(tile.b, tile.head, tile.query), s_.heads * s_.value_width,
              real, kept_scale(), memory + at_dy_, row_e_);
  }

  /// Writes the weights after dropout to at_scores_, without its scale, which the packed dy includes, and the
  /// scores' gradient to at_dweights_.
  void find_dscores(const Tile& tile, Index skipped, const T* deltas, DropoutWords& words, T* memory) const {
    T *scores = memory + at_scores_, *dweights = memory + at_dweights_;
    scores_.scores(tile.head, tile.rows, tile.columns, {memory + at_queries_, row_d_},
                   {memory + at_transposed_keys_ + skipped, row_s_}, {scores, row_s_});
    mask_scores(s_, x_.bias, tile, scores, row_s_);
    block_product<T>(tile.rows, tile.columns, s_.value_width, {memory + at_dy_, row_e_, 1},
                     {memory + at_transposed_values_ + skipped, row_s_}, dweights, row_s_, false);
    const Index width = padded<T>(tile.columns);
    const T* log_sums = log_sum_ + (tile.b * s_.heads + tile.head) * s_.queries + tile.query;
    for (Index t = 0; t < tile.rows; ++t) {
      T *line = scores + t * row_s_, *dline = dweights + t * row_s_;
      const std::uint32_t* row_words = s_.drops ? words.row(tile, t) : nullptr;
      if (s_.drops) drop(tile.columns, row_words, s_.dropped, dline);
      const Lanes<T> shift(log_sums[t] == kMinusInfinity<T> ? T(0) : log_sums[t]);
      Lanes<T> product(T(0)), total(T(0));
      for (Index i = 0; i < width; i += kLanes<T>) {
        const Lanes<T> weight = xsimd::exp(Lanes<T>::load_unaligned(line + i) - shift);
        product = xsimd::fma(weight, Lanes<T>::load_unaligned(dline + i), product);
        total += weight;
        weight.store_unaligned(line + i);
      }
      const T weights = sum_lanes<T>(total);  // zero if no key is visible
      const T share = sees_whole_rows_ && weights > T(0) ? T(1) / weights : T(1);
      const Lanes<T> scale(share), delta(sees_whole_rows_ ? sum_lanes<T>(product) * share : deltas[t]);
      for (Index i = 0; i < width; i += kLanes<T>) {
        const Lanes<T> weight = Lanes<T>::load_unaligned(line + i) * scale;
        const Lanes<T> dweight = Lanes<T>::load_unaligned(dline + i) - delta;
        weight.store_unaligned(line + i);
        (weight * dweight).store_unaligned(dline + i);
      }
      if (s_.drops) drop(tile.columns, row_words, s_.dropped, line);
    }
  }

  void add_partial_dqueries() const {
    parallel_ranges(s_.batch * s_.heads * s_.queries, pieces_ * s_.key_width, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i) {
        const Index b = i / (s_.heads * s_.queries), head = i / s_.queries % s_.heads, t = i % s_.queries;
        Write<T> sum = part_of(to_.dquery, s_.query, b, t, head);
        for (Index piece = 0; piece < pieces_; ++piece, sum.add = true) {
          const T* row = partial_dquery(b, head / heads_, piece, head % heads_) + t * row_d_;
          put_rows(1, s_.key_width, row, row_d_, scores_.query_scale, sum, 0);
        }
      }
    });
  }

  void add_partial_dweights() const {
    for (Index head = 0; head < s_.heads; ++head) {
      for (Index d = 0; d < s_.key_width; ++d) {
        T sum = T(0);
        for (Index piece = 0; piece < pieces_; ++piece) {
          for (Index b = 0; b < s_.batch; ++b) {
            sum += partial_dweight(b, head / heads_, piece, head % heads_)[d];
          }
        }
        to_.dweight.put(head * s_.key_width + d, sum);
      }
    }
  }

  T kept_scale() const { return s_.drops ? static_cast<T>(s_.kept_scale) : T(1); }

  const AttentionShape& s_;
  const AttentionOperands<T>& x_;
  Scores scores_;
  const T *y_, *log_sum_, *dy_;
  const AttentionGradients<T>& to_;
  Index heads_, row_d_, row_e_, row_s_;  // query heads that share a key; distances of packed rows
  Index pieces_ = 1;                     // of the keys
  bool sees_whole_rows_;
  Index at_deltas_ = 0, at_dqueries_ = 0, at_queries_ = 0, at_dy_ = 0, at_keys_ = 0, at_transposed_keys_ = 0,
        at_values_ = 0, at_transposed_values_ = 0, at_dkeys_ = 0, at_dvalues_ = 0, at_scores_ = 0,
        at_dweights_ = 0, memory_size_ = 0;
  T *partial_dquery_ = nullptr, *partial_dweight_ = nullptr;
};

}  // namespace

template <class T>
void attention_backward(Cpu, const AttentionShape& shape, const AttentionOperands<T>& x, const T* y,
                        const Wide<T>* log_sum, const T* dy, const AttentionGradients<T>& to) {
  if (shape.heads == 0) return;
  if (x.weight == nullptr)
    AttentionBackward<T, DotScores<T>>(shape, x, y, log_sum, dy, to).run();
  else
    AttentionBackward<T, AdditiveScores<T>>(shape, x, y, log_sum, dy, to).run();
}

#define INSTANTIATE(T)                                                                                \
  template void attention_backward(Cpu, const AttentionShape&, const AttentionOperands<T>&, const T*, \
                                   const T*, const T*, const AttentionGradients<T>&);
TAPEFORMER_CPU_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
