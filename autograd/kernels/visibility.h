#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// The input that decides the range of keys that each query may see; ops/attention.h explains the fields.
/// Pointers that are nullptr restrict nothing.
struct Visibility {
  Index batch = 0, queries = 0, keys = 0;  // B, T, S
  Index sequences = 0;                     // N packed ones with query_starts, else B
  bool causal = false;
  bool top_left = false;  // the first query has the first key's position; else the last one the last key's
  Index before = -1, after = -1;  // of the window, at most S + T; -1 for no limit
  Index stride = 1, span = 1;     // of the positions of a key
  const std::int32_t *key_lengths = nullptr, *prefix_lengths = nullptr;  // [N]
  const std::int32_t *query_starts = nullptr, *key_starts = nullptr;     // [N + 1], both or none
  const bool *query_mask = nullptr, *key_mask = nullptr;                 // [B, T], [B, S]
};

/// One sequence: its rows among the B T queries, and its keys within those of its batch entry.
struct Sequence {
  Index row, queries, key, keys;
};

TAPEFORMER_HOST_DEVICE inline Sequence sequence_at(const Visibility& v, Index i) {
  if (v.query_starts == nullptr) return {i * v.queries, v.queries, 0, v.keys};
  // On a GPU starts are checked while kernels already run, which must not read beyond the keys.
  const auto within = [](Index x, Index least, Index most) {
    return x < least ? least : most < x ? most : x;
  };
  const Index row = v.query_starts[i], key = within(v.key_starts[i], 0, v.keys);
  return {row, v.query_starts[i + 1] - row, key, within(v.key_starts[i + 1], key, v.keys) - key};
}

/// The number of keys whose positions are all below `positions`.
TAPEFORMER_HOST_DEVICE inline Index whole_keys(const Visibility& v, Index positions) {
  return positions < v.span ? 0 : (positions - v.span) / v.stride + 1;
}

/// The number of keys of sequence i that are in use.
TAPEFORMER_HOST_DEVICE inline Index keys_at(const Visibility& v, const Sequence& sequence, Index i) {
  if (v.key_lengths == nullptr) return sequence.keys;
  const Index length = whole_keys(v, v.key_lengths[i]);  // likewise unchecked
  return length < sequence.keys ? length : sequence.keys;
}

/// The position of query t of sequence i among the sequence's keys.
TAPEFORMER_HOST_DEVICE inline Index position_at(const Visibility& v, const Sequence& sequence, Index i,
                                                Index t) {
  if (v.top_left) return t;
  return t + (v.span > 1 ? v.key_lengths[i] : keys_at(v, sequence, i)) - sequence.queries;
}

/// The keys that positions and lengths allow query t of sequence i to see, without the masks.
TAPEFORMER_HOST_DEVICE inline KeyRange range_at(const Visibility& v, const Sequence& sequence, Index i,
                                                Index t) {
  const auto least = [](Index a, Index b) { return a < b ? a : b; };
  const auto most = [](Index a, Index b) { return a < b ? b : a; };
  const Index keys = keys_at(v, sequence, i), position = position_at(v, sequence, i, t);
  const Index prefix = v.prefix_lengths != nullptr ? v.prefix_lengths[i] : 0;
  Index from = 0, to = keys;
  if (v.causal) to = least(to, most(whole_keys(v, position + 1), prefix));
  if (v.before >= 0) from = most(from, position - v.before);
  if (v.after >= 0) to = least(to, position + v.after + 1);
  from = least(from, keys);
  return {sequence.key + from, sequence.key + most(from, to)};
}

/// The ranges [from, to) of keys, [B, T] each. They begin and end at keys that key_mask keeps; a query that
/// is not real, or that has no keys left, gets an empty range.
TAPEFORMER_PLAIN_KERNEL(find_visible_keys, const Visibility& visibility, std::int32_t* from,
                        std::int32_t* to);

/// The entry of a relative bias for a key; the nearest one for keys too far away, which the query cannot see.
TAPEFORMER_HOST_DEVICE inline std::int32_t relative_entry(Index key, Index position, Index reach) {
  const Index entry = key - position + reach;
  return static_cast<std::int32_t>(entry < 0 ? 0 : 2 * reach < entry ? 2 * reach : entry);
}

/// positions [B, T]: the key whose position each query has, which need not be one of its sequence.
TAPEFORMER_PLAIN_KERNEL(find_positions, const Visibility& visibility, std::int32_t* positions);

/// entries [rows, keys]: key - position + reach, within [0, 2 reach].
TAPEFORMER_PLAIN_KERNEL(write_relative_entries, Index rows, Index keys, Index reach,
                        const std::int32_t* positions, std::int32_t* entries);

/// pairs [rows, keys]: whether a key lies in the range of a row.
TAPEFORMER_PLAIN_KERNEL(write_visible_pairs, Index rows, Index keys, const std::int32_t* from,
                        const std::int32_t* to, bool* pairs);

/// The pairs that a mask keeps, read at b * [0] + h * [1] + t * [2] + s * [3] of the strides.
struct PairMask {
  Index batch = 0, heads = 1, queries = 0, keys = 0;  // B, H, T, S
  Index groups = 1;                                   // G
  const bool* pairs = nullptr;
  Index strides[4] = {0, 0, 0, 0};

  TAPEFORMER_HOST_DEVICE bool at(Index b, Index h, Index t, Index s) const {
    return pairs[b * strides[0] + h * strides[1] + t * strides[2] + s * strides[3]];
  }
};

/// queries [B, T, H]: those that see a key; keys [B, S, G]: those that a query of their group sees.
TAPEFORMER_PLAIN_KERNEL(find_seen_rows, const PairMask& mask, bool* queries, bool* keys);

}  // namespace tapeformer::kernels
