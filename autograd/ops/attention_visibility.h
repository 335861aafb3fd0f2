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
/// are and the ranges are wanted; nothing waits for it. The functions below look at the ranges from the
/// host.
VisibleKeys visible_keys(const AttentionMasks& masks, Index B, Index T, Index S, Device device);

/// bool [B, T]: whose range is not empty; undefined when all ranges are whole.
Tensor seeing_queries(const VisibleKeys& visible);
/// bool [B, S]: the keys of `key_mask` that lie in some query's range; undefined when that is all of them.
Tensor seen_keys(const VisibleKeys& visible, const Tensor& key_mask, Index S);
/// bool, of the shape of `mask`: the pairs that it leaves in; undefined when it leaves in all.
Tensor pairs_left_in(const Tensor& mask);

/// bool [B, T, H]: which queries see a key; or, where all heads are alike, [B, T]. bool [B, S, G], or [B, S]:
/// which keys a query of their group sees.
struct SeenRows {
  Tensor queries, keys;
};

/// From `pairs`, bool, which broadcasts to `scores` [B, H, T, S].
SeenRows seen_rows(const Tensor& pairs, const Shape& scores, Index groups);

/// bool [B, 1, T, S]: the ranges written out; undefined when all are whole.
Tensor visible_pairs(const VisibleKeys& visible, Index S);

}  // namespace tapeformer
