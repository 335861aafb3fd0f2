#pragma once

#include <tapeformer/nn/attention/attention.h>
#include <tapeformer/nn/linear.h>

#include <initializer_list>
#include <string>

namespace tapeformer {

// Sizes and shapes that all attention layers share.

/// A size, or its default if it is 0.
inline Index or_else(Index size, Index fallback) { return size > 0 ? size : fallback; }

struct NamedSize {
  const char* name;
  Index size;
};
/// Throws: Error naming a size that is negative, with `got` before it
void check_sizes(const char* op, std::initializer_list<NamedSize> sizes, const std::string& got = "");

/// `heads` with output_width / heads in place of a width that is 0; an output_width of 0 is `width`.
/// Throws: Error if a size is negative, or heads is not a multiple of groups or not a divisor of a width that
///         is left to it
PackedHeads resolved_heads(const char* op, Index width, Index output_width, const PackedHeads& heads,
                           const std::string& got = "");

/// Throws: ShapeError unless query and memory are [B, T, C]; a memory may be missing once the cache holds it.
void check_inputs(const char* op, const Tensor& query, const Tensor& memory, const KvCache* cache);

/// Sets the bias to zero, where there is one.
void clear_bias(Linear& layer);

/// [B, T, H D] -> [B, T, H, D]
Tensor split_heads(const Tensor& x, Index heads);
/// [B, T, H, E] -> [B, T, H E]
Tensor merge_heads(const Tensor& heads);

}  // namespace tapeformer
