#pragma once

#include <tapeformer/nn/attention/attention.h>
#include <tapeformer/nn/dropout.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

// For attention layers with heads: sizes and shapes, options from the context, and the cache.

/// A size, or its default if it is 0.
inline Index or_else(Index size, Index fallback) { return size > 0 ? size : fallback; }

/// `heads` with output_width / heads in place of a width that is 0; an output_width of 0 is `width`.
/// Throws: Error if a size is negative, or heads is not a multiple of groups, or does not divide the width of
///         which a head gets a share
PackedHeads resolved_heads(const char* op, Index width, Index output_width, const PackedHeads& heads,
                           const std::string& got = "");

/// Throws: ShapeError unless query and memory are [B, T, C]; a memory may be missing once the cache holds it.
void check_inputs(const char* op, const Tensor& query, const Tensor& memory, const KvCache* cache);

/// Throws: Error, prefixed with `op`, unless the call is self-attention; `what` is as in "exclusive is"
void require_self_attention(const char* op, const char* what, bool is_self);

/// Checks a call of a kind with kOnlyCausal; `rule` says why other masks are refused.
/// Throws: Error, prefixed with `op`, for a mask other than the causal one, which more than one token must
///         have, or a memory that is not the query
void check_only_causal(const char* op, const char* rule, const Tensor& query, const Tensor& memory,
                       const AttentionContext& context);

/// Sets the bias to zero, where there is one.
void clear_bias(Linear& layer);

/// [B, T, H D] -> [B, T, H, D]
Tensor split_heads(const Tensor& x, Index heads);
/// [B, T, H, E] -> [B, T, H E]
Tensor merge_heads(const Tensor& heads);

/// The context's masks and weights, and a layer's dropout on the weights.
AttentionOptions attention_options(const AttentionContext& context, const Dropout& dropout);

/// Adds keys and values to what the cache holds.
void append_heads(KvCache& cache, const KeyValueHeads& new_kv);
/// All keys and values in the cache, once `fresh` ones, if any, are appended. Its spare room is included,
/// unless weights are requested or a tape records, and is masked: `options` get key_lengths, and their masks
/// are widened. Only groups and widths of `heads` matter.
/// Throws:  ShapeError for masks or key_lengths over another number of keys than these; `fresh` is then not
///          appended
KeyValueHeads cached_kv(KvCache& cache, const PackedHeads& heads, AttentionOptions& options,
                        const KeyValueHeads& fresh = {});

/// Keys and values to attend to. Without a cache they are project()'s. With one, self-attention appends
/// project()'s and attends to the whole cache; cross-attention calls project() while the cache is empty, and
/// attends to the cache.
template <class Project>
KeyValueHeads cached_heads(KvCache* cache, bool is_self, const PackedHeads& heads, AttentionOptions& options,
                           const Project& project) {
  if (cache == nullptr) return project();
  const bool appends = is_self || cache->length() == 0;
  return cached_kv(*cache, heads, options, appends ? project() : KeyValueHeads{});
}

}  // namespace tapeformer
