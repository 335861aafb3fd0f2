#pragma once

#include <tapeformer/autograd/ops/attention.h>

namespace tapeformer {

/// Checks the inputs [B, T, H, D], [B, S, G, D] and [B, S, G, E] and the options of every kind of attention.
/// Throws:  ShapeError, DTypeError naming `op`, the shapes and a remedy
void check_attention(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                     const AttentionOptions& options);

/// check_attention() for queries, keys and values in one projection.
void check_packed_attention(const char* op, const Tensor& packed, const PackedHeads& heads,
                            const AttentionOptions& options);

}  // namespace tapeformer
