#pragma once

#include <tapeformer/autograd/ops/attention/sparse_attention.h>
#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/layer_record.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/nn/norm.h>

namespace tapeformer {

/// The lightning indexer of DeepSeek sparse attention: heads so narrow that they can score all keys, and by
/// their scores each query chooses the few keys to which latent attention attends. It learns by a loss of its
/// own, on detached inputs, so that it changes no gradient of the rest of the model, whose loss does not
/// reach it through the choice.
/// Math:    q_h = R W_Q,h c', k = R norm(W_K x), w = W_w x, with c' the latents of attention's queries, or x,
///          and R rotating the first components by positions;
///          I[t, s] = sum_h w[t, h] relu(q_h[t] . k[s] / sqrt(D)) / sqrt(H); the K keys with the largest I
///          loss: index_loss times the mean over tokens of KL(p || softmax(I)) over the chosen keys, p being
///          attention's own weights of these, a mean over heads; with K of the context or more, all keys
/// Shapes:  query.weight [H D, I], key.weight [D, C], weights.weight [H, C]
/// Initial: PyTorch's default
/// Source:  DeepSeek-AI 2025, arXiv:2512.02556, section 2.1
class Indexer : public Module {
 public:
  /// The indexer of a resolved config with an index_top_k.
  Indexer(const AttentionConfig& config, Generator& random);

  /// Shapes:  x [B, S, C] -> [B, S, 1, D]
  Tensor keys(const Tensor& x, const RotaryAngles& angles) const;
  /// The factors of the scores, from x [B, T, C], the queries' latents [B, T, I] and all keys.
  IndexHeads heads(const Tensor& x, const Tensor& latents, const Tensor& keys,
                   const RotaryAngles& angles) const;
  /// True if a call must add the loss to this record.
  bool learns(const LayerRecord* record) const { return record != nullptr && training_ && weight_ > 0; }
  /// Adds the loss. shares [B, T, K] are attention's weights of the chosen keys.
  void add_loss(const IndexHeads& index, const Tensor& chosen, const Tensor& shares,
                LayerRecord& record) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  RotaryAngles own_layout(const RotaryAngles& angles) const { return {angles.table, layout_}; }

  Index heads_;
  RotaryLayout layout_;
  double weight_;
  Linear query_, key_, weights_;
  LayerNorm key_norm_;
  bool training_ = true;
};

/// Throws: Error if indexers have losses, which the output of a checkpointed layer lacks
void require_no_losses(const char* model, const AttentionConfig& config);

}  // namespace tapeformer
