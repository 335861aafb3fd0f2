#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/decoder_only_layer.h>
#include <tapeformer/nn/transformer/head_loss.h>
#include <tapeformer/nn/transformer/layer_caches.h>
#include <tapeformer/nn/transformer/token_input.h>

namespace tapeformer {

/// Documents packed into the single row of a batch. No token attends to another document.
struct PackedDocuments {
  Tensor starts;     ///< i32 [N + 1]: document i is tokens starts[i] to starts[i + 1] - 1
  Tensor positions;  ///< i32 [1, T]: each token's place in its document
};

/// A decoder-only language model, from GPT-2 to Llama by configuration.
/// Math:    x = embedding(ids) + position; in every layer x = x + attention(norm(x)) and then
///          x = x + feed_forward(norm(x)); logits = head(norm(x)), with a head_scale s: head(s norm(x)), with
///          a softcap c: c tanh(logits / c); with short_convolution K, a sublayer reads a ShortConvolution of
///          K taps of norm(x); with a head_transform, head(head_norm(activation(W norm(x)))); with post-norm
///          x in place of norm(x) before the head
/// Initial: matrices and tables normal with standard deviation 0.02, those that write into the residual sum
///          with 0.02 / sqrt(2 L), or with zero_init 0; biases and convolutions 0. With sinusoids, embeddings
///          as in TokenInput.
/// Source:  Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; Touvron et al. 2023,
///          arXiv:2302.13971; prefix: Raffel et al. 2020, arXiv:1910.10683, section 3.2.1; zero_init:
///          Jordan et al. 2024, github.com/KellerJordan/modded-nanogpt; bidirectional: Devlin et al. 2019,
///          arXiv:1810.04805; Warner et al. 2024, arXiv:2412.13663
class DecoderOnly : public Module {
 public:
  /// Throws: as DecoderOnlyConfig::check()
  DecoderOnly(const DecoderOnlyConfig& config, Generator& random);
  /// Loads a trained model from a run folder (config.json, weights.safetensors), in evaluation mode.
  /// Throws: CheckpointError
  static DecoderOnly load(const std::string& folder);

  /// The logits of every next token. The first prefix_lengths[b] tokens of a row attend to each other in both
  /// directions, the rest is causal; without prefix_lengths everything is causal, or nothing in a model that
  /// is bidirectional.
  /// Shapes:  ids i32 [B, T], prefix_lengths i32 [B] -> [B, T, V]
  /// Throws:  ShapeError beyond the context, or for an id outside the vocabulary
  Tensor operator()(const Tensor& ids, const Tensor& prefix_lengths = {}) const {
    return logits(states(ids, prefix_lengths));
  }
  /// Mean cross-entropy, in nats, of the targets that are not -1; in training with the losses of routers
  /// and indexers, each a mean over the layers.
  /// Shapes:  ids, targets i32 [B, T] -> []
  Tensor loss(const Tensor& ids, const Tensor& targets, const Tensor& prefix_lengths = {},
              const HeadLossConfig& head = {}, const PackedDocuments& documents = {}) const;

  /// The final states, which the head projects to logits. With `documents`, B is 1, and T may exceed the
  /// context: only positions are limited. `record` is for routers and indexers.
  /// Shapes:  ids i32 [B, T], prefix_lengths i32 [B] or undefined -> [B, T, C]
  /// Throws:  Error for documents in a model whose layers keep a state or have short convolutions
  Tensor states(const Tensor& ids, const Tensor& prefix_lengths = {}, const PackedDocuments& documents = {},
                LayerRecord* record = nullptr) const;
  /// The final states of tokens that follow those in `caches`, and appends them there. Never recorded.
  Tensor states(const Tensor& ids, LayerCaches& caches, const Tensor& prefix_lengths = {}) const;
  /// Each layer's attention weights, for inspection; undefined for a layer with a state. Never recorded.
  /// Shapes:  ids i32 [B, T] -> L times [B, H, T, T]
  std::vector<Tensor> attention_weights(const Tensor& ids) const;
  /// Empty caches; the first call of states() sets the number of sequences. Throws: Error for an encoder
  LayerCaches start(const CacheConfig& config = {}) const;
  /// Shapes:  states [..., C] -> [..., V]
  Tensor logits(const Tensor& states) const { return head_(states); }
  /// The device of its parameters, where inputs must be too.
  Device device() const { return head_.weight().value().device(); }

  /// Activation checkpointing: a tape keeps only each layer's input and recomputes the rest in the backward
  /// pass. The results are the same to the last bit. The model must live and keep its mode until that pass.
  /// Calls that fill a LayerRecord keep everything, as do layers whose keys or values others read.
  /// Throws:  Error for routers or indexers with losses of their own, which are not in the results
  void recompute_layers(bool recompute);

  void visit(ParameterVisitor& visitor) override;
  /// The configuration of the model.
  const DecoderOnlyConfig& config() const { return config_; }

 private:
  Tensor through_layers(const Tensor& embedded_btc, const AttentionContext& sequences, LayerCaches* caches,
                        std::vector<Tensor>* weights = nullptr, LayerRecord* record = nullptr) const;

  DecoderOnlyConfig config_;
  TokenInput input_;
  std::vector<DecoderOnlyLayer> layers_;
  std::optional<Norm> norm_;
  std::optional<Linear> head_transform_;
  std::optional<Norm> head_norm_;
  Head head_;
  bool recomputes_layers_ = false;
};

}  // namespace tapeformer
