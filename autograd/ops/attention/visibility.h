#pragma once

#include <tapeformer/autograd/ops/attention.h>

namespace tapeformer {

/// The range of keys that each query may see: [from, to), i32 [B, T] each. Both are undefined if every query
/// may see every key. This alone implements AttentionMasks' positions, lengths and sequences.
struct VisibleKeys {
  Tensor from, to;
  bool defined() const { return from.defined(); }
};

/// The ranges of `masks`, without mask and the holes of key_mask: they begin and end at real keys. A query
/// that is not real, or has no keys left, gets an empty range. `device` holds the masks and the ranges;
/// nothing here waits for it.
VisibleKeys visible_keys(const AttentionMasks& masks, Index B, Index T, Index S, Device device);

/// For a profile: the number of keys in the ranges of `rows` queries, which it waits for.
Index count_pairs(const VisibleKeys& visible, Index rows, Index S);

/// i32 [B, T]: the key at the position of each query, counted from the start of the first packed sequence.
Tensor query_positions(const AttentionMasks& masks, Index B, Index T, Index S, Device device);

/// [B, H, T, S] or [B, 1, T, S]: a relative bias [H, 2 R + 1] or [1, 2 R + 1] for every pair.
Tensor relative_pairs(const Tensor& relative_bias, const Tensor& positions, Index S);

/// bool, of the shape of `mask`: true for the pairs that it keeps; undefined without a mask.
Tensor pairs_left_in(const Tensor& mask);

/// bool [B, T, H]: the queries that see a key. bool [B, S, G]: the keys that a query of their group sees.
struct SeenRows {
  Tensor queries, keys;
};

/// From `pairs`, bool, which broadcasts to `scores` [B, H, T, S].
SeenRows seen_rows(const Tensor& pairs, const Shape& scores, Index groups);

/// bool [B, 1, T, S]: the ranges as a mask; undefined if all are whole.
Tensor visible_pairs(const VisibleKeys& visible, Index S);

}  // namespace tapeformer
