#pragma once

#include <tapeformer/autograd/ops/attention.h>

namespace tapeformer {

/// Which keys each query may see at most: [from, to), i32 [B, T] each. Both are undefined when every query
/// may see every key. What AttentionMasks says about positions, lengths and sequences is said here alone.
struct VisibleKeys {
  Tensor from, to;
  bool defined() const { return from.defined(); }
};

/// Everything in `masks` but mask, and but the holes of key_mask: ranges begin and end at real keys. A
/// query that is not real, or that nothing is left for, gets an empty range. `device` is where the masks
/// are and the ranges are wanted; nothing here waits for it.
VisibleKeys visible_keys(const AttentionMasks& masks, Index B, Index T, Index S, Device device);

/// bool, of the shape of `mask`: the pairs that it leaves in; undefined where it is known to leave in all.
Tensor pairs_left_in(const Tensor& mask);

/// bool [B, T, H]: which queries see a key. bool [B, S, G]: which keys a query of their group sees.
struct SeenRows {
  Tensor queries, keys;
};

/// From `pairs`, bool, which broadcasts to `scores` [B, H, T, S].
SeenRows seen_rows(const Tensor& pairs, const Shape& scores, Index groups);

/// bool [B, 1, T, S]: the ranges written out; undefined when all are whole.
Tensor visible_pairs(const VisibleKeys& visible, Index S);

}  // namespace tapeformer
