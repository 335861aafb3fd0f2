#pragma once

#include <tapeformer/autograd/ops/attention.h>

#include <functional>

namespace tapeformer {

/// query [B, T, H, D], key [B, S, H, D] -> scores [B, H, T, S]
using AttentionScores = std::function<Tensor(const Tensor& query, const Tensor& key)>;

/// Attention in plain operations around any scores. Rows that the masks leave out are first cleared of
/// values that are not finite, and grouped heads are repeated; then come the additive mask, the masks,
/// softmax, dropout and the values. The inputs must have been checked.
Tensor composed_attention_of(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionOptions& options, const AttentionScores& scores);

}  // namespace tapeformer
