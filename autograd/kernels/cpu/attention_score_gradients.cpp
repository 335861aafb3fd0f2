#include <tapeformer/autograd/kernels/cpu/attention_dscores.h>

#include <algorithm>
#include <cmath>

namespace tapeformer::kernels {
namespace {

constexpr Index kRowsTogether = 5 * kQueryBlock;  // of a mask's gradient: about as many as keys of a block

/// Sums the gradients of scores over everything that a mask, a relative bias or a parameter repeats along.
/// Each sum has one owner, which adds up in order. Of a mask that depends on the query a unit owns some rows,
/// over the batch and the heads. For all else it owns some queries of one head, and the units' sums are added
/// at the end.
template <class T, class Scores>
class AttentionScoreSums {
 public:
  AttentionScoreSums(const AttentionShape& shape, const AttentionOperands<T>& x, const T* y, const T* log_sum,
                     const T* dy, const AttentionScoreGradients<T>& to)
      : s_(shape),
        x_(x),
        log_sum_(log_sum),
        to_(to),
        dscores_(shape, x, y, log_sum, dy, to.dparameter ? Slopes::by_parameter : Slopes::none, layout_) {
    has_rows_ = to_.dbias && s_.bias_strides[2] != 0;
    entries_ = to_.drelative ? 2 * s_.reach + 1 : 0;
    columns_ = !to_.dbias ? 0 : s_.bias_strides[3] != 0 ? s_.keys : 1;
    const bool uneven = s_.key_from != nullptr || s_.key_to != nullptr;
    pieces_ = pieces_of(s_.batch * s_.heads, uneven, blocks_of(s_.queries, kQueryBlock));
    at_rows_ = layout_.take(has_rows_ ? kRowsTogether * kKeyBlock : 0);
  }

  void run() {
    dscores_.find_shares(work(), layout_.size());
    if (to_.dsinks) sum_sinks();
    if (has_rows_) sum_rows();
    if (entries_ + partial_columns() > 0 || to_.dparameter) {
      sum_partials();
      if (to_.drelative) reduce(to_.drelative, 0, s_.relative_stride, entries_, 1, 0);
      if (to_.dbias && !has_rows_)
        reduce(to_.dbias, s_.bias_strides[0], s_.bias_strides[1], columns_, s_.bias_strides[3], entries_);
      if (to_.dparameter) reduce(to_.dparameter, 0, s_.parameter_stride, 1, 0, partial_size() - 1);
    }
  }

 private:
  /// A unit's sums: for the relative bias, the mask's columns and the parameter.
  Index partial_columns() const { return has_rows_ ? 0 : columns_; }
  Index partial_size() const { return entries_ + partial_columns() + 1; }
  double* partial(Index b, Index head, Index piece) const {
    return partials_ + ((piece * s_.batch + b) * s_.heads + head) * partial_size();
  }
  double work() const {
    return static_cast<double>(s_.batch * s_.heads * s_.queries * s_.keys) *
           static_cast<double>(s_.key_width + s_.value_width) / 8;
  }

  /// dsink = -sum over rows of exp(sink - log_sum) dy y
  void sum_sinks() const {
    parallel_ranges(s_.heads, s_.batch * s_.queries * s_.value_width, [&](Index first, Index last) {
      for (Index head = first; head < last; ++head) {
        double sum = 0;
        for (Index b = 0; b < s_.batch; ++b) {
          for (Index t = 0; t < s_.queries; ++t) {
            T delta = T(0);
            dscores_.find_deltas(b, head, t, t + 1, &delta);
            if (!dscores_.sees(b, head, t)) continue;
            const T share = dscores_.share(b, head, t) *
                            std::exp(x_.sinks[head] - log_sum_[(b * s_.heads + head) * s_.queries + t]);
            sum -= static_cast<double>(share) * static_cast<double>(delta);
          }
        }
        to_.dsinks.put(head, static_cast<T>(sum));
      }
    });
  }

  /// Calls each(tile, memory) for the tiles of some queries of a head and one block of keys.
  template <class F>
  void each_tile(Index b, Index head, Index from, Index to, Index key, DropoutWords& words, T* memory,
                 const F& each) const {
    const Index count = std::min(kKeyBlock, s_.keys - key);
    const KeyRange all = keys_of(s_, b, from, to);
    if (all.from >= key + count || all.to <= key) return;
    dscores_.pack_keys(b, head, head + 1, from, to, key, count, memory);
    for_tiles<T>(s_, b, head, from, to, key, count, [&](const Tile& tile, Index skipped) {
      T deltas[kQueryBlock] = {};
      if (!dscores_.sees_whole_rows)
        dscores_.find_deltas(b, head, tile.query, tile.query + tile.rows, deltas);
      dscores_.pack_queries(tile, memory);
      dscores_.find(tile, skipped, deltas, words, memory);
      each(tile, memory);
    });
  }

  /// The gradient of a mask that depends on the query.
  void sum_rows() const {
    const Index batch = s_.bias_strides[0] != 0 ? s_.batch : 1,
                heads = s_.bias_strides[1] != 0 ? s_.heads : 1;
    const Index blocks = blocks_of(s_.queries, kRowsTogether);
    for_units<AttentionScoreSums, T>(
        blocks * batch * heads, work(), layout_.size(), [&](Index unit, T* memory) {
          const Index b = unit / heads % batch, head = unit % heads;
          sum_unit_rows({b, batch == 1 ? s_.batch : b + 1}, {head, heads == 1 ? s_.heads : head + 1},
                        unit / (batch * heads) * kRowsTogether, memory);
        });
  }

  void sum_unit_rows(KeyRange batch, KeyRange heads, Index from, T* memory) const {
    const Index to = std::min(s_.queries, from + kRowsTogether);
    const bool has_columns = s_.bias_strides[3] != 0;
    T* sums = memory + at_rows_;
    std::fill(sums, sums + (to - from) * kKeyBlock, T(0));
    DropoutWords words(s_);
    for (Index key = 0; key == 0 || key < s_.keys; key += kKeyBlock) {  // without keys, zeros
      for (Index b = batch.from; b < batch.to; ++b) {
        for (Index head = heads.from; head < heads.to; ++head) {
          each_tile(b, head, from, to, key, words, memory, [&](const Tile& tile, const T*) {
            for (Index t = 0; t < tile.rows; ++t) {
              T* row = sums + (tile.query - from + t) * kKeyBlock;
              const T* dscores = memory + dscores_.at_dscores + t * dscores_.row_s;
              if (has_columns)
                combine_row(tile.columns, row + tile.key - key, dscores, 1,
                            [](T sum, T d) { return sum + d; });
              else
                *row += total_simd(tile.columns, dscores);
            }
          });
        }
      }
      if (!has_columns && key + kKeyBlock < s_.keys) continue;
      const Index first = batch.from * s_.bias_strides[0] + heads.from * s_.bias_strides[1];
      for (Index t = from; t < to; ++t) {
        T* row = sums + (t - from) * kKeyBlock;
        const Index count = has_columns ? std::min(kKeyBlock, s_.keys - key) : 1;
        for (Index i = 0; i < count; ++i)
          to_.dbias.put(first + t * s_.bias_strides[2] + (key + i) * s_.bias_strides[3], row[i]);
        std::fill(row, row + count, T(0));
      }
    }
  }

  void sum_partials() {
    struct Partial {};
    const Index units = pieces_ * s_.batch * s_.heads;
    partials_ = thread_memory<Partial, double>(units * partial_size());
    std::fill(partials_, partials_ + units * partial_size(), 0.0);
    for_units<AttentionScoreSums, T>(units, work(), layout_.size(), [&](Index unit, T* memory) {
      const Index head = unit % s_.heads, b = unit / s_.heads % s_.batch, piece = unit / s_.heads / s_.batch;
      const Index blocks = blocks_of(s_.queries, kQueryBlock);
      const Index from = blocks * piece / pieces_ * kQueryBlock,
                  to = std::min(s_.queries, blocks * (piece + 1) / pieces_ * kQueryBlock);
      DropoutWords words(s_);
      double* sums = partial(b, head, piece);
      for (Index key = 0; key < s_.keys; key += kKeyBlock) {
        each_tile(b, head, from, to, key, words, memory,
                  [&](const Tile& tile, const T* found) { add_to_partials(tile, found, sums); });
      }
    });
  }

  void add_to_partials(const Tile& tile, const T* memory, double* sums) const {
    const T *dscores = memory + dscores_.at_dscores, *slopes = memory + dscores_.at_slopes;
    const Index row = dscores_.row_s;
    const auto add = [](double sum, T d) { return sum + static_cast<double>(d); };
    if (to_.drelative) {
      each_relative_row(s_, tile, [&](Index t, Index low, Index high, Index entry) {
        combine_row(high - low, sums + entry, dscores + t * row + low, 1, add);
      });
    }
    for (Index t = 0; t < tile.rows && partial_columns() > 0; ++t) {
      if (s_.bias_strides[3] != 0)
        combine_row(tile.columns, sums + entries_ + tile.key, dscores + t * row, 1, add);
      else
        sums[entries_] += static_cast<double>(total_simd(tile.columns, dscores + t * row));
    }
    for (Index t = 0; t < tile.rows && to_.dparameter; ++t) {
      sums[partial_size() - 1] += static_cast<double>(
          sum_simd<T>(tile.columns, product_or_zero<T>, dscores + t * row, slopes + t * row));
    }
  }

  /// to = the units' sums from `at` on, added up over the queries, and over the batch and the heads unless
  /// `to` has a stride along them.
  void reduce(const Write<T>& to, Index batch_stride, Index head_stride, Index count, Index stride,
              Index at) const {
    const Index batch = batch_stride != 0 ? s_.batch : 1, heads = head_stride != 0 ? s_.heads : 1;
    const Index units = pieces_ * s_.batch * s_.heads / std::max<Index>(1, batch * heads);
    parallel_ranges(batch * heads, count * units, [&](Index first, Index last) {
      for (Index owner = first; owner < last; ++owner) {
        const Index own_b = owner / heads, own_head = owner % heads;
        for (Index i = 0; i < count; ++i) {
          double sum = 0;
          for (Index b = own_b; b < (batch == 1 ? s_.batch : own_b + 1); ++b)
            for (Index head = own_head; head < (heads == 1 ? s_.heads : own_head + 1); ++head)
              for (Index piece = 0; piece < pieces_; ++piece) sum += partial(b, head, piece)[at + i];
          to.put(own_b * batch_stride + own_head * head_stride + i * stride, static_cast<T>(sum));
        }
      }
    });
  }

  const AttentionShape& s_;
  const AttentionOperands<T>& x_;
  const T* log_sum_;
  const AttentionScoreGradients<T>& to_;
  Layout<T> layout_;
  AttentionDscores<T, Scores> dscores_;
  bool has_rows_;  // the mask's gradient, which then is summed by rows
  Index entries_, columns_, pieces_, at_rows_;
  double* partials_ = nullptr;
};

}  // namespace

template <class T>
void attention_score_gradients(Cpu, const AttentionShape& shape, const AttentionOperands<T>& x, const T* y,
                               const Wide<T>* log_sum, const T* dy, const AttentionScoreGradients<T>& to) {
  if (x.weight == nullptr)
    AttentionScoreSums<T, DotScores<T>>(shape, x, y, log_sum, dy, to).run();
  else
    AttentionScoreSums<T, AdditiveScores<T>>(shape, x, y, log_sum, dy, to).run();
}

TAPEFORMER_CPU_KERNEL(attention_score_gradients);

}  // namespace tapeformer::kernels
