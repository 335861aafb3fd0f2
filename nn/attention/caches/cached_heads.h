#pragma once

#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/dropout.h>

namespace tapeformer {

// Shared by attention layers with heads: options from the context, and the cache.

/// The context's masks and weights, and a layer's dropout on the weights.
AttentionOptions attention_options(const AttentionContext& context, const Dropout& dropout);

/// Adds keys and values to what the cache holds.
void append_heads(KvCache& cache, const KeyValueHeads& new_kv);
/// All that the cache holds. Its spare room comes along, unless weights are asked for or a tape records, and
/// is masked out: `options` get key_lengths, and their masks are widened. Only groups and widths of `heads`
/// matter.
/// Throws:  ShapeError for masks or key_lengths over another number of keys than the cache holds
KeyValueHeads cached_kv(const KvCache& cache, const PackedHeads& heads, AttentionOptions& options);

/// Keys and values to attend to. Without a cache they are project()'s. With one, self-attention appends
/// project()'s and attends to all it holds; cross-attention calls project() while the cache is empty, and
/// then attends to what it holds.
template <class Project>
KeyValueHeads cached_heads(KvCache* cache, bool is_self, const PackedHeads& heads, AttentionOptions& options,
                           const Project& project) {
  if (cache == nullptr) return project();
  if (is_self || cache->length() == 0) append_heads(*cache, project());
  return cached_kv(*cache, heads, options);
}

}  // namespace tapeformer
