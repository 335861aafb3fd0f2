#pragma once

#include <tapeformer/autograd/kernels/attention.h>

#include <cmath>
#include <limits>

namespace tapeformer::kernels {

/// The sizes of attention to blocks of keys, and the keys that queries may see. Keys and values are laid out
/// [B, G, S, ...]: a unit is one of the blocks of one of the B G rows, which are cut from position 0 on.
struct BlockSizes {
  Index batch = 0, queries = 0, keys = 0;  // B, T, S
  Index heads = 1, groups = 1;             // H, G
  Index key_width = 0;                     // D
  Index block = 1, top_k = 1;              // keys per block; blocks per query, its own included
  Index choosers = 1;                      // neighbouring heads that make one choice together
  const std::int32_t *from = nullptr, *to = nullptr, *positions = nullptr;  // [B, T]; see ops/attention.h

  TAPEFORMER_HOST_DEVICE Index rows() const { return batch * queries * heads; }
  TAPEFORMER_HOST_DEVICE Index parts() const { return rows() * top_k; }
  TAPEFORMER_HOST_DEVICE Index whole_blocks() const { return keys / block; }
  TAPEFORMER_HOST_DEVICE Index blocks() const { return (keys + block - 1) / block; }
  TAPEFORMER_HOST_DEVICE Index units() const { return batch * groups * blocks(); }
  /// The row of keys, below B G, that a row of queries (b, t, h) reads.
  TAPEFORMER_HOST_DEVICE Index key_row(Index row) const {
    return row / (queries * heads) * groups + row % heads / (heads / groups);
  }
};

/// The keys that a row of queries may see, without the choice of blocks.
TAPEFORMER_HOST_DEVICE inline KeyRange seen_range(const BlockSizes& s, Index row) {
  const Index query = row / s.heads;
  if (s.from == nullptr) return {0, s.keys};
  return {s.from[query], s.to[query]};
}

/// The keys of a unit that a row of queries sees, among those of all units.
TAPEFORMER_HOST_DEVICE inline KeyRange range_in_unit(const BlockSizes& s, Index row, Index unit) {
  if (unit >= s.units()) return {0, 0};
  const KeyRange seen = seen_range(s, row);
  const Index first = unit % s.blocks() * s.block, end = first + s.block, start = unit / s.blocks() * s.keys;
  return {start + (seen.from > first ? seen.from : first), start + (seen.to < end ? seen.to : end)};
}

/// Calls each(block) for the whole blocks other than `own` that a row of queries may see entirely.
template <class F>
TAPEFORMER_HOST_DEVICE void for_other_blocks(const BlockSizes& s, Index row, Index own, const F& each) {
  const KeyRange seen = seen_range(s, row);
  for (Index block = (seen.from + s.block - 1) / s.block; (block + 1) * s.block <= seen.to; ++block)
    if (block != own) each(block);
}

/// The block at the position of a row of queries.
TAPEFORMER_HOST_DEVICE inline Index own_block(const BlockSizes& s, Index row) {
  const Index position = s.positions[row / s.heads];
  return position < 0 ? 0 : (position < s.keys ? position : s.keys - 1) / s.block;
}

/// Writes the units [K] of a row of queries: its own, then those with the largest scores, of equal scores the
/// first one first. Places that are left get the number of units. Both arrays are those of all rows.
template <class W>
TAPEFORMER_HOST_DEVICE void choose_for_row(const BlockSizes& s, Index row, const W* all_scores,
                                           std::int32_t* all_units) {
  const W* const scores = all_scores + row / s.choosers * s.whole_blocks();
  std::int32_t* const units = all_units + row * s.top_k;
  const Index own = own_block(s, row), first = s.key_row(row) * s.blocks();
  const KeyRange seen = seen_range(s, row);
  Index count = 0;
  if (seen.from < seen.to) units[count++] = static_cast<std::int32_t>(first + own);
  for_other_blocks(s, row, own, [&](Index block) {
    Index at = count;
    for (; at > 1 && scores[block] > scores[units[at - 1] - first]; --at)
      if (at < s.top_k) units[at] = units[at - 1];
    if (at < s.top_k) units[at] = static_cast<std::int32_t>(first + block);
    if (count < s.top_k) ++count;
  });
  for (; count < s.top_k; ++count) units[count] = static_cast<std::int32_t>(s.units());
}

/// The parts of all rows, each a row of queries with one of its units, sorted by unit and then by row.
struct SortedParts {
  std::int32_t* rows;       // [N K]: the row of queries of each part
  std::int32_t* places;     // [N, K]: the part of each choice
  std::int32_t* starts;     // [units + 1]: the first part of each unit; parts of no unit come last
  std::int32_t *from, *to;  // [N K]: the keys that each part sees, among the B G S
};

/// units [N, K]: the choice of every row by scores [N / choosers, S / block]. With `means` of blocks of keys
/// [B, G, S / block, D] the scores are their products with query [B, T, H, D], and are computed here.
TAPEFORMER_KERNEL(choose_blocks, const BlockSizes& sizes, const T* query, const Wide<T>* means,
                  Wide<T>* scores, std::int32_t* units);

TAPEFORMER_PLAIN_KERNEL(sort_by_block, const BlockSizes& sizes, const std::int32_t* units,
                        const SortedParts& parts);

/// Whether a pair (b, h, t, s) of `index` in [B, H, T, S] lies in a unit that the query has chosen.
TAPEFORMER_HOST_DEVICE inline bool is_chosen_pair(const BlockSizes& s, const std::int32_t* units,
                                                  Index index) {
  const Index key = index % s.keys, t = index / s.keys % s.queries, h = index / s.keys / s.queries % s.heads,
              b = index / s.keys / s.queries / s.heads, row = (b * s.queries + t) * s.heads + h;
  for (Index i = 0; i < s.top_k; ++i)
    if (units[row * s.top_k + i] == s.key_row(row) * s.blocks() + key / s.block) return true;
  return false;
}
/// pairs [B, H, T, S]: whether a key lies in a unit that the query has chosen.
TAPEFORMER_PLAIN_KERNEL(write_chosen_pairs, const BlockSizes& sizes, const std::int32_t* units, bool* pairs);

/// attention_forward() of a shape with a query for each part and the keys of all units.
TAPEFORMER_KERNEL(block_attention_forward, const BlockSizes& sizes, const AttentionShape& shape,
                  const std::int32_t* starts, const AttentionOperands<T>& x, T* y, Wide<T>* log_sum);
/// attention_backward() of that shape, from the y and log_sum of whole rows.
TAPEFORMER_KERNEL(block_attention_backward, const BlockSizes& sizes, const AttentionShape& shape,
                  const std::int32_t* starts, const AttentionOperands<T>& x, const T* y,
                  const Wide<T>* log_sum, const T* dy, const AttentionGradients<T>& to);

/// y [N, width]: the sum over each row's parts [N K, width], in the order of the choice. With part_log_sums
/// [N K] they are weighted by their shares of the row's sum of exponentials, whose logarithm is log_sum [N].
TAPEFORMER_KERNEL(add_block_parts, const BlockSizes& sizes, Index width, const std::int32_t* places,
                  const T* parts, const Wide<T>* part_log_sums, Write<T> y, Wide<T>* log_sum);

/// The sum of exponentials of one row, relative to that of its largest score.
template <class W>
struct PartSum {
  W largest, total;
};

/// The sum of a row from the logarithms of its parts' sums, at `places` [K]. For a row that sees nothing,
/// `largest` is minus infinity and `total` is 1.
template <class W>
TAPEFORMER_HOST_DEVICE PartSum<W> sum_of_parts(Index top_k, const std::int32_t* places, const W* log_sums) {
  W largest = log_sums[places[0]], total = W(0);
  for (Index i = 1; i < top_k; ++i) largest = largest < log_sums[places[i]] ? log_sums[places[i]] : largest;
  if (!(largest > -std::numeric_limits<W>::infinity())) return {largest, W(1)};
  for (Index i = 0; i < top_k; ++i) total += std::exp(log_sums[places[i]] - largest);
  return {largest, total};
}

/// The weight of a part among those of its row.
template <class W>
TAPEFORMER_HOST_DEVICE W weight_of_part(const PartSum<W>& sum, W log_sum) {
  return log_sum > -std::numeric_limits<W>::infinity() ? std::exp(log_sum - sum.largest) / sum.total : W(0);
}

}  // namespace tapeformer::kernels
