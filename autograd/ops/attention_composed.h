#pragma once

#include <tapeformer/autograd/ops/attention.h>

#include <functional>

namespace tapeformer {

/// query [B, T, H, D], key [B, S, H, D] -> scores [B, H, T, S]
using AttentionScores = std::function<Tensor(const Tensor& query, const Tensor& key)>;

/// Attention in plain operations around any scores: what the masks leave out is cleaned of what is not finite
/// before, grouped heads are repeated; then the additive mask, the masks, softmax, dropout and the values.
/// The inputs are checked already.
Tensor composed_attention_of(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionOptions& options, const AttentionScores& scores);

}  // namespace tapeformer
