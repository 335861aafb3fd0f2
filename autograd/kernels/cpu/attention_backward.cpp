#include <tapeformer/autograd/kernels/cpu/attention_dscores.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

/// to = scale * rows; rows of `to` are `to_row` apart.
template <class T>
void put_rows(Index count, Index width, const T* rows, Index row, T scale, Write<T> to, Index to_row) {
  for (Index i = 0; to && i < count; ++i)
    write_scaled(width, scale, rows + i * row, Write<T>{to.to + i * to_row, to.add});
}

/// A gradient from one row of one head on.
template <class T>
Write<T> part_of(Write<T> gradient, const HeadStrides& strides, Index b, Index row, Index head) {
  return {gradient ? gradient.to + strides.at(b, row, head) : nullptr, gradient.add};
}

/// A unit is one group of heads and some blocks of keys, whose gradients it sums over all queries. If a group
/// is cut into several units, each sums the gradients of queries separately; these sums are added in order at
/// the end.
/// Source:  Dao 2023, arXiv:2307.08691, algorithm 2
template <class T, class Scores>
class AttentionBackward {
 public:
  AttentionBackward(const AttentionShape& shape, const AttentionOperands<T>& x, const T* y, const T* log_sum,
                    const T* dy, const AttentionGradients<T>& to)
      : s_(shape),
        to_(to),
        heads_(shape.heads / shape.groups),
        dscores_(shape, x, y, log_sum, dy, Slopes::by_score, layout_) {
    const bool uneven = s_.key_from != nullptr || s_.key_to != nullptr;
    pieces_ = pieces_of(s_.batch * s_.groups, uneven, blocks_of(s_.keys, kKeyBlock));
    const Index keys = padded<T>(std::min(kKeyBlock, s_.keys)), row_d = dscores_.row_d;
    at_deltas_ = layout_.take(heads_ * s_.queries);
    at_dqueries_ = layout_.take(pieces_ == 1 ? heads_ * s_.queries * row_d : 0);
    at_dkeys_ = layout_.take(keys * row_d);
    at_dvalues_ = layout_.take(keys * dscores_.row_e);
  }

  void run() {
    const Index groups = s_.batch * s_.groups, units = pieces_ * groups;
    struct Partial {};
    const Index queries_size = pieces_ == 1 ? 0 : units * heads_ * s_.queries * dscores_.row_d;
    partial_dquery_ = thread_memory<Partial, T>(queries_size + units * heads_ * dscores_.row_d);
    partial_dweight_ = partial_dquery_ + queries_size;
    const double work = static_cast<double>(s_.batch * s_.heads * s_.queries * s_.keys) *
                        static_cast<double>(3 * s_.key_width + 2 * s_.value_width) / 8;
    dscores_.find_shares(work, layout_.size());
    for_units<AttentionBackward, T>(units, work, layout_.size(), [&](Index unit, T* memory) {
      run_unit(unit % groups / s_.groups, unit % s_.groups, unit / groups, memory);
    });
    if (pieces_ > 1 && to_.dquery) add_partial_dqueries();
    if (to_.dweight) add_partial_dweights();
  }

 private:
  /// One unit's sums for the gradients of head r's queries and weight.
  T* partial_dquery(Index b, Index group, Index piece, Index r) const {
    return partial_dquery_ +
           (((piece * s_.batch + b) * s_.groups + group) * heads_ + r) * s_.queries * dscores_.row_d;
  }
  T* partial_dweight(Index b, Index group, Index piece, Index r) const {
    return partial_dweight_ + (((piece * s_.batch + b) * s_.groups + group) * heads_ + r) * dscores_.row_d;
  }
  void run_unit(Index b, Index group, Index piece, T* memory) const {
    T* dqueries = pieces_ == 1 ? memory + at_dqueries_ : partial_dquery(b, group, piece, 0);
    std::fill(dqueries, dqueries + heads_ * s_.queries * dscores_.row_d, T(0));
    T* dweight = partial_dweight(b, group, piece, 0);
    std::fill(dweight, dweight + heads_ * dscores_.row_d, T(0));
    for (Index r = 0; r < heads_ && !dscores_.sees_whole_rows; ++r)
      dscores_.find_deltas(b, group * heads_ + r, 0, s_.queries, memory + at_deltas_ + r * s_.queries);

    DropoutWords words(s_);
    const KeyRange all = keys_of(s_, b, 0, s_.queries);
    for (Index blocks = blocks_of(s_.keys, kKeyBlock), block = blocks * piece / pieces_;
         block < blocks * (piece + 1) / pieces_; ++block) {
      const Index key = block * kKeyBlock, count = std::min(kKeyBlock, s_.keys - key);
      std::fill(memory + at_dkeys_, memory + at_dkeys_ + count * dscores_.row_d, T(0));
      std::fill(memory + at_dvalues_, memory + at_dvalues_ + count * dscores_.row_e, T(0));
      if (all.from < key + count && all.to > key) {
        dscores_.pack_keys(b, group * heads_, (group + 1) * heads_, 0, s_.queries, key, count, memory);
        for (Index r = 0; r < heads_; ++r) {
          T* dquery = dqueries + r * s_.queries * dscores_.row_d;
          run_head(b, group * heads_ + r, r, key, count, words, dquery, dweight + r * dscores_.row_d, memory);
        }
      }
      put_rows(count, s_.key_width, memory + at_dkeys_, dscores_.row_d, dscores_.scores.key_scale,
               part_of(to_.dkey, s_.key, b, key, group), s_.key.row);
      put_rows(count, s_.value_width, memory + at_dvalues_, dscores_.row_e, T(1),
               part_of(to_.dvalue, s_.value, b, key, group), s_.value.row);
    }
    for (Index r = 0; r < heads_ && pieces_ == 1; ++r) {
      put_rows(s_.queries, s_.key_width, dqueries + r * s_.queries * dscores_.row_d, dscores_.row_d, T(1),
               part_of(to_.dquery, s_.query, b, 0, group * heads_ + r), s_.query.row);
    }
  }

  void run_head(Index b, Index head, Index r, Index key, Index count, DropoutWords& words, T* dquery,
                T* dweight, T* memory) const {
    for_tiles<T>(s_, b, head, 0, s_.queries, key, count, [&](const Tile& tile, Index skipped) {
      const Index t = tile.query;
      dscores_.pack_queries(tile, memory);
      dscores_.find(tile, skipped, memory + at_deltas_ + r * s_.queries + t, words, memory);
      if (s_.function != ScoreFunction::none) apply_slopes(tile, memory);
      const Index row_d = dscores_.row_d, row_e = dscores_.row_e, row_s = dscores_.row_s;
      T *dkeys = memory + at_dkeys_ + skipped * row_d, *dvalues = memory + at_dvalues_ + skipped * row_e;
      if (to_.dvalue) {
        block_product<T>(tile.columns, s_.value_width, tile.rows, {memory + dscores_.at_weights, 1, row_s},
                         {memory + dscores_.at_dy, row_e}, dvalues, row_e, true);
      }
      dscores_.scores.gradients(head, tile.rows, tile.columns, {memory + dscores_.at_dscores, row_s},
                                {memory + dscores_.at_queries, row_d},
                                {memory + dscores_.at_keys + skipped * row_d, row_d},
                                {dquery + t * row_d, row_d}, {dkeys, row_d}, dweight);
    });
  }

  /// Turns the gradients of the function's values into the gradients of raw scores.
  void apply_slopes(const Tile& tile, T* memory) const {
    for (Index t = 0; t < tile.rows; ++t) {
      T* line = memory + dscores_.at_dscores + t * dscores_.row_s;
      const T* slopes = memory + dscores_.at_slopes + t * dscores_.row_s;
      map_simd(0, padded<T>(tile.columns), line, product_or_zero<T>, line, slopes);
    }
  }

  void add_partial_dqueries() const {
    parallel_ranges(s_.batch * s_.heads * s_.queries, pieces_ * s_.key_width, [&](Index from, Index to) {
      for (Index i = from; i < to; ++i) {
        const Index b = i / (s_.heads * s_.queries), head = i / s_.queries % s_.heads, t = i % s_.queries;
        Write<T> sum = part_of(to_.dquery, s_.query, b, t, head);
        for (Index piece = 0; piece < pieces_; ++piece, sum.add = true) {
          const T* row = partial_dquery(b, head / heads_, piece, head % heads_) + t * dscores_.row_d;
          put_rows(1, s_.key_width, row, dscores_.row_d, T(1), sum, 0);
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

  const AttentionShape& s_;
  const AttentionGradients<T>& to_;
  Index heads_;       // query heads that share a key
  Index pieces_ = 1;  // of the keys
  Layout<T> layout_;
  AttentionDscores<T, Scores> dscores_;
  Index at_deltas_ = 0, at_dqueries_ = 0, at_dkeys_ = 0, at_dvalues_ = 0;
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

TAPEFORMER_CPU_KERNEL(attention_backward);

}  // namespace tapeformer::kernels
