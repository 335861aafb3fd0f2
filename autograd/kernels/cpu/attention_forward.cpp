#include <tapeformer/autograd/kernels/cpu/attention_modifiers.h>
#include <tapeformer/autograd/kernels/cpu/attention_scores.h>

#include <algorithm>
#include <cmath>

namespace tapeformer::kernels {
namespace {

constexpr Index kMostRowsTogether = 1024;  // queries of a unit, so that their outputs fit in the L2 cache

/// A unit is one group of heads and some blocks of queries: it packs each block of keys and values once for
/// all its queries. A single query reads them where they are: packing would take longer than its products.
/// Source:  Dao 2023, arXiv:2307.08691, algorithm 1
template <class T, class Scores>
class AttentionForward {
 public:
  AttentionForward(const AttentionShape& shape, const AttentionOperands<T>& x, T* y, T* log_sum)
      : s_(shape),
        x_(x),
        scores_(shape, x.weight),
        y_(y),
        log_sum_(log_sum),
        heads_(shape.heads / shape.groups),
        in_place_(std::is_same_v<Scores, DotScores<T>> && shape.queries == 1),
        row_d_(leading<T>(shape.key_width)),
        row_e_(leading<T>(shape.value_width)),
        row_s_(leading<T>(std::min(kKeyBlock, shape.keys))) {
    const Index blocks = blocks_of(s_.queries, kQueryBlock);
    const Index least = blocks_of(heads_ * s_.queries, kMostRowsTogether);
    const bool uneven = s_.key_from != nullptr || s_.key_to != nullptr;
    pieces_ = std::min(blocks, std::max(least, pieces_of(s_.batch * s_.groups, uneven, blocks)));
    const Index block = std::min(kQueryBlock, s_.queries), keys = padded<T>(std::min(kKeyBlock, s_.keys));
    most_rows_ = pieces_ == 0 ? 0 : std::min(s_.queries, blocks_of(blocks, pieces_) * kQueryBlock);
    Layout<T> layout;
    at_sums_ = layout.take(heads_ * most_rows_ * row_e_);
    at_largest_ = layout.take(heads_ * most_rows_);
    at_totals_ = layout.take(heads_ * most_rows_);
    at_keys_ = layout.take(keys * row_d_);
    at_transposed_ = layout.take(padded<T>(s_.key_width) * row_s_);
    at_values_ = layout.take(keys * row_e_);
    at_scores_ = layout.take(block * row_s_);
    memory_size_ = layout.size();
  }

  /// The last queries come first: with a causal mask they have the most work.
  void run() const {
    const double work = static_cast<double>(s_.batch * s_.heads * s_.queries * s_.keys) *
                        static_cast<double>(s_.key_width + s_.value_width) / 8;
    for_units<AttentionForward, T>(pieces_ * s_.batch * s_.groups, work, memory_size_,
                                   [&](Index unit, T* memory) {
                                     const Index piece = pieces_ - 1 - unit / (s_.batch * s_.groups);
                                     const Index rest = unit % (s_.batch * s_.groups);
                                     run_unit(rest / s_.groups, rest % s_.groups, piece, memory);
                                   });
  }

 private:
  void run_unit(Index b, Index group, Index piece, T* memory) const {
    const Index blocks = blocks_of(s_.queries, kQueryBlock);
    const Index from = blocks * piece / pieces_ * kQueryBlock,
                to = std::min(s_.queries, blocks * (piece + 1) / pieces_ * kQueryBlock);
    const Index rows = to - from;
    const auto begin = [&](Index r, Index t) { return r * rows + t - from; };  // of head r's query t
    std::fill(memory + at_sums_, memory + at_sums_ + heads_ * rows * row_e_, T(0));
    std::fill(memory + at_largest_, memory + at_largest_ + heads_ * rows, kMinusInfinity<T>);
    std::fill(memory + at_totals_, memory + at_totals_ + heads_ * rows, T(0));

    DropoutWords words(s_);
    const KeyRange all = keys_of(s_, b, from, to);
    for (Index key = all.from; key < all.to; key += kKeyBlock) {
      const Index count = std::min(kKeyBlock, all.to - key);
      std::uint8_t seen[kKeyBlock];
      find_seen_keys(s_, x_.bias, b, group * heads_, (group + 1) * heads_, from, to, key, count, seen);
      if (!in_place_) pack_keys(b, group, key, count, seen, memory);
      for (Index r = 0; r < heads_; ++r) {
        for_tiles<T>(s_, b, group * heads_ + r, from, to, key, count, [&](const Tile& tile, Index skipped) {
          run_tile(tile, skipped, begin(r, tile.query), seen + skipped, words, memory);
        });
      }
    }
    for (Index r = 0; r < heads_; ++r) finish(b, group * heads_ + r, from, to, begin(r, from), memory);
  }

  void pack_keys(Index b, Index group, Index key, Index count, const std::uint8_t* seen, T* memory) const {
    T* keys = memory + at_keys_;
    pack_rows(count, s_.key_width, x_.key + s_.key.at(b, key, group), s_.key.row, seen, scores_.key_scale,
              keys, row_d_);
    std::fill(keys + count * row_d_, keys + padded<T>(count) * row_d_, T(0));
    transpose_block(padded<T>(count), s_.key_width, keys, row_d_, memory + at_transposed_, row_s_);
    pack_rows(count, s_.value_width, x_.value + s_.value.at(b, key, group), s_.value.row, seen, T(1),
              memory + at_values_, row_e_);
  }

  /// The scores of a single query's keys, 0 where one is not seen.
  void score_in_place(const Tile& tile, const std::uint8_t* seen, const T* query, T* scores) const {
    const T* key = x_.key + s_.key.at(tile.b, tile.key, tile.head / heads_);
    const T* value = x_.value + s_.value.at(tile.b, tile.key, tile.head / heads_);
    for (Index i = 0; i < tile.columns; ++i, key += s_.key.row, value += s_.value.row) {
      for (Index d = 0; d < s_.value_width; d += kLanes<T>) __builtin_prefetch(value + d);
      for (Index d = 0; d < s_.key_width; d += kLanes<T>) __builtin_prefetch(key + s_.key_width + d);
      scores[i] = seen[i] ? scores_.key_scale * dot_simd(s_.key_width, query, key) : T(0);
    }
  }

  /// Adds the weighted values of the keys that are seen.
  void add_in_place(const Tile& tile, const std::uint8_t* seen, const T* weights, T* sums) const {
    const T* values = x_.value + s_.value.at(tile.b, tile.key, tile.head / heads_);
    for (Index from = 0; from < s_.value_width; from += kLanes<T>) {
      const Index lanes = std::min(kLanes<T>, s_.value_width - from);
      Lanes<T> even(T(0)), odd(T(0));  // two chains of additions
      const auto add = [&](Index i, Lanes<T>& sum) {
        const T* value = values + i * s_.value.row + from;
        if (seen[i])
          sum =
              xsimd::fma(Lanes<T>(weights[i]),
                         lanes == kLanes<T> ? Lanes<T>::load_unaligned(value) : load_part(value, lanes), sum);
      };
      for (Index i = 0; i + 1 < tile.columns; i += 2) add(i, even), add(i + 1, odd);
      if (tile.columns % 2 == 1) add(tile.columns - 1, even);
      (Lanes<T>::load_unaligned(sums + from) + (even + odd)).store_unaligned(sums + from);
    }
  }

  void run_tile(const Tile& tile, Index skipped, Index begin, const std::uint8_t* seen, DropoutWords& words,
                T* memory) const {
    T* scores = memory + at_scores_;
    T *sums = memory + at_sums_ + begin * row_e_, *largest = memory + at_largest_ + begin,
      *totals = memory + at_totals_ + begin;
    const T* queries = x_.query + s_.query.at(tile.b, tile.query, tile.head);
    if (in_place_)
      score_in_place(tile, seen, queries, scores);
    else
      scores_.scores(tile.head, tile.rows, tile.columns, {queries, s_.query.row},
                     {memory + at_transposed_ + skipped, row_s_}, {scores, row_s_});
    modify_scores(s_, x_, tile, scores, row_s_);
    if (s_.weighting == AttentionWeighting::sigmoid)
      find_sigmoids(tile, words, scores, largest);
    else
      find_exponentials(tile, words, scores, largest, totals, sums);
    if (in_place_) return add_in_place(tile, seen, scores, sums);
    block_product<T>(tile.rows, s_.value_width, tile.columns, {scores, row_s_, 1},
                     {memory + at_values_ + skipped * row_e_, row_e_}, sums, row_e_, true);
  }

  /// Online softmax: a new maximum scales down the earlier sums.
  void find_exponentials(const Tile& tile, DropoutWords& words, T* scores, T* largest, T* totals,
                         T* sums) const {
    const Index width = padded<T>(tile.columns);
    T shifts[kQueryBlock], shrinks[kQueryBlock];
    for (Index t = 0; t < tile.rows; ++t) {
      const T before = largest[t];
      largest[t] = std::max(before, max_simd(width, scores + t * row_s_));
      shifts[t] = largest[t] == kMinusInfinity<T> ? T(0) : largest[t];
      const bool shrinks_now = before != kMinusInfinity<T> && before != largest[t];
      shrinks[t] = shrinks_now ? std::exp(before - largest[t]) : T(1);
    }
    for (Index t = 0; t < tile.rows; ++t) {
      T* line = scores + t * row_s_;
      const Lanes<T> shift(shifts[t]);
      Lanes<T> total(T(0));
      for (Index i = 0; i < width; i += kLanes<T>) {
        const Lanes<T> weight = exp_lanes(Lanes<T>::load_unaligned(line + i) - shift);
        weight.store_unaligned(line + i);
        total += weight;
      }
      totals[t] = totals[t] * shrinks[t] + sum_lanes<T>(total);
      if (s_.drops) drop(tile.columns, words.row(tile, t), s_.dropped, line);
      if (shrinks[t] != T(1)) scale_sums(shrinks[t], sums + t * row_e_, sums + t * row_e_);
    }
  }

  /// The largest scores only tell whether a row sees anything.
  void find_sigmoids(const Tile& tile, DropoutWords& words, T* scores, T* largest) const {
    const Index width = padded<T>(tile.columns);
    for (Index t = 0; t < tile.rows; ++t) {
      T* line = scores + t * row_s_;
      largest[t] = std::max(largest[t], max_simd(width, line));
      map_simd(0, width, line, Function<Unary::sigmoid>::value<Lanes<T>>, line);
      if (s_.drops) drop(tile.columns, words.row(tile, t), s_.dropped, line);
    }
  }

  /// A sink is one more key, whose value is zero.
  void add_sink(T sink, Index at, T* memory) const {
    T &largest = memory[at_largest_ + at], &total = memory[at_totals_ + at];
    if (largest == kMinusInfinity<T>) return;
    const T most = std::max(largest, sink), shrink = std::exp(largest - most);
    total = total * shrink + std::exp(sink - most);
    largest = most;
    scale_sums(shrink, memory + at_sums_ + at * row_e_, memory + at_sums_ + at * row_e_);
  }

  void scale_sums(T scale, const T* sums, T* to) const {
    write_scaled(s_.value_width, scale, sums, Write<T>{to, false});
  }

  void finish(Index b, Index head, Index from, Index to, Index begin, T* memory) const {
    const T kept_scale = s_.drops ? static_cast<T>(s_.kept_scale) : T(1);
    const bool is_softmax = s_.weighting == AttentionWeighting::softmax;
    const T *largest = memory + at_largest_ + begin, *totals = memory + at_totals_ + begin;
    for (Index at = begin; x_.sinks != nullptr && at < begin + to - from; ++at)
      add_sink(x_.sinks[head], at, memory);
    const auto log_sum = [&](const Lanes<T>& most, const Lanes<T>& total) {
      return is_softmax ? most + Math<Lanes<T>>::log(total)
                        : xsimd::select(most == Lanes<T>(kMinusInfinity<T>), most, Lanes<T>(T(0)));
    };
    map_simd(0, to - from, log_sum_ + (b * s_.heads + head) * s_.queries + from, log_sum, largest, totals);
    for (Index t = from; t < to; ++t) {
      const Index at = t - from;
      const T scale = !is_softmax ? kept_scale : totals[at] == T(0) ? T(0) : kept_scale / totals[at];
      scale_sums(scale, memory + at_sums_ + (begin + at) * row_e_,
                 y_ + ((b * s_.queries + t) * s_.heads + head) * s_.value_width);
    }
  }

  const AttentionShape& s_;
  const AttentionOperands<T>& x_;
  Scores scores_;
  T *y_, *log_sum_;
  Index heads_;  // query heads that share a key
  bool in_place_;
  Index row_d_, row_e_, row_s_;       // distances of packed rows
  Index pieces_ = 0, most_rows_ = 0;  // of the queries; in one piece
  Index at_sums_ = 0, at_largest_ = 0, at_totals_ = 0, at_keys_ = 0, at_transposed_ = 0, at_values_ = 0,
        at_scores_ = 0, memory_size_ = 0;
};

}  // namespace

template <class T>
void attention_forward(Cpu, const AttentionShape& shape, const AttentionOperands<T>& x, T* y,
                       Wide<T>* log_sum) {
  if (shape.batch == 0 || shape.heads == 0 || shape.queries == 0) return;
  if (x.weight == nullptr)
    AttentionForward<T, DotScores<T>>(shape, x, y, log_sum).run();
  else
    AttentionForward<T, AdditiveScores<T>>(shape, x, y, log_sum).run();
}

TAPEFORMER_CPU_KERNEL(attention_forward);

}  // namespace tapeformer::kernels
