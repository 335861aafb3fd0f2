#pragma once

#include <tapeformer/autograd/ops/attention.h>

namespace tapeformer {

/// What every attention over [B, T, H, D], [B, S, G, D] and [B, S, G, E] requires of its inputs and options.
/// Throws:  ShapeError, DTypeError naming `op`, the shapes and a remedy
void check_attention(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                     const AttentionOptions& options);

/// As above with queries, keys and values in one projection.
void check_packed_attention(const char* op, const Tensor& packed, const PackedHeads& heads,
                            const AttentionOptions& options);

}  // namespace tapeformer
