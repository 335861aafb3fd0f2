#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/decoder_only_layer.h>
#include <tapeformer/nn/transformer/head_loss.h>
#include <tapeformer/nn/transformer/layer_caches.h>
#include <tapeformer/nn/transformer/token_input.h>

#include <string>
#include <vector>

namespace tapeformer {

/// A language model: GPT-2 with one configuration, Llama with another.
/// Math:    x = embedding(ids) + position; in every layer x = x + attention(norm(x)) and then
///          x = x + feed_forward(norm(x)); logits = head(norm(x))
/// Initial: matrices and tables normal with standard deviation 0.02, those that write into the residual sum
///          with 0.02 / sqrt(2 L); biases 0. With sinusoids, the embeddings are TokenInput's.
/// Source:  Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; Touvron et al. 2023,
///          arXiv:2302.13971; prefix: Raffel et al. 2020, arXiv:1910.10683, section 3.2.1
class DecoderOnly : public Module {
 public:
  /// Throws: as DecoderOnlyConfig::check()
  DecoderOnly(const DecoderOnlyConfig& config, Generator& random);
  /// The trained model of a run folder (config.json, weights.safetensors), in evaluation mode.
  /// Throws: CheckpointError
  static DecoderOnly load(const std::string& folder);

  /// The logits of every next token. The first prefix_lengths[b] tokens of a row see each other, the rest is
  /// causal; undefined: all of it is.
  /// Shapes:  ids i32 [B, T], prefix_lengths i32 [B] -> [B, T, V]
  /// Throws:  ShapeError beyond the context, or for an id outside the vocabulary
  Tensor operator()(const Tensor& ids, const Tensor& prefix_lengths = {}) const {
    return logits(states(ids, prefix_lengths));
  }
  /// Mean cross-entropy, in nats, of the targets that are not -1.
  /// Shapes:  ids, targets i32 [B, T] -> []
  Tensor loss(const Tensor& ids, const Tensor& targets, const Tensor& prefix_lengths = {},
              const HeadLossConfig& head = {}) const;

  /// What the head reads.
  /// Shapes:  ids i32 [B, T], prefix_lengths i32 [B] or undefined -> [B, T, C]
  Tensor states(const Tensor& ids, const Tensor& prefix_lengths = {}) const;
  /// The same for tokens that go on where those in `caches` end, which then hold them too. Not recorded.
  Tensor states(const Tensor& ids, LayerCaches& caches, const Tensor& prefix_lengths = {}) const;
  /// Of sequences without tokens; the first call of states() decides their number.
  LayerCaches start(const CacheConfig& config = {}) const;
  /// Shapes:  states [..., C] -> [..., V]
  Tensor logits(const Tensor& states) const { return head_(states); }
  /// Where its parameters are, and its inputs must be.
  Device device() const { return head_.weight().value().device(); }

  /// From now on a tape keeps of each layer what goes into it, and computes the rest again in its reverse
  /// pass, up to which the model must live, in the mode that it was in. The same results to the last bit.
  void recompute_layers(bool recompute) { recomputes_layers_ = recompute; }

  void visit(ParameterVisitor& visitor) override;
  const DecoderOnlyConfig& config() const { return config_; }

 private:
  Tensor through_layers(const Tensor& embedded_btc, const AttentionMasks& masks, LayerCaches* caches) const;

  DecoderOnlyConfig config_;
  TokenInput input_;
  std::vector<DecoderOnlyLayer> layers_;
  Norm norm_;
  Linear head_;
  bool recomputes_layers_ = false;
};

}  // namespace tapeformer
