#pragma once

#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

// Relative biases for AttentionModifiers: entry r + R of a row is added to the scores of keys r after the
// query; R is the reach. All are made from other operations, so that slopes and tables may be learned.

/// The slopes of attention with linear biases, a geometric sequence: 2^(-8 h / H) for head h = 1..H if H is a
/// power of two; else those of the power of two P below, and then the first, third, ... of 2 P heads.
/// Shapes:  -> [H], f32
/// Throws:  ShapeError unless there are heads
/// Source:  Press et al. 2022, arXiv:2108.12409, section 3; other numbers of heads as in the authors' code
Tensor alibi_slopes(Index heads, Device device = default_device());

/// Attention with linear biases: scores fall with the distance between query and key.
/// Math:    bias[h, r + R] = -slopes[h] |r|
/// Shapes:  slopes [H] -> [H, 2 R + 1]
/// Throws:  ShapeError if slopes has another rank, or R is negative
/// Source:  Press et al. 2022, arXiv:2108.12409, section 3
Tensor alibi_bias(const Tensor& slopes, Index reach);

/// T5's buckets. In each direction the first half of them hold one of the nearest distances each; the others
/// share the distances up to max_distance in logarithmic steps, and the last one holds all beyond.
struct DistanceBuckets {
  Index count = 32;           ///< of both directions together
  bool bidirectional = true;  ///< half of the buckets for later keys; else those share bucket 0
  Index max_distance = 128;
};

/// The bucket of keys r after the query.
/// Source:  Raffel et al. 2020, arXiv:1910.10683, section 2.1; the arithmetic, in f32, as in the authors'
///          code
Index bucket_of(Index r, const DistanceBuckets& buckets);

/// The buckets of the distances from -M to M, where M is max_distance; the outermost two hold all beyond.
/// Shapes:  -> i32 [2 M + 1]
/// Throws:  ShapeError unless every direction has two buckets and a max_distance beyond the near ones
Tensor distance_buckets(const DistanceBuckets& buckets, Device device = default_device());

/// A learned bias for each bucket of distances and each head.
/// Math:    bias[h, r + R] = table[bucket_of(r), h]
/// Shapes:  table [N, H], ids of distance_buckets() [2 M + 1] -> [H, 2 R + 1]
/// Throws:  ShapeError unless the table has rows, the ids are of that shape, and R is not negative
Tensor bucketed_bias(const Tensor& table, const Tensor& ids, Index reach);

}  // namespace tapeformer
