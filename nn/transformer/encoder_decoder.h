#pragma once

#include <tapeformer/nn/transformer/encoder_decoder_config.h>
#include <tapeformer/nn/transformer/head_loss.h>
#include <tapeformer/nn/transformer/layer_caches.h>
#include <tapeformer/nn/transformer/token_input.h>

namespace tapeformer {

/// The layers of an encoder or a decoder.
class LayerStack : public Module {
 public:
  LayerStack(const EncoderDecoderConfig& config, Generator& random, TransformerSide side);

  /// See EncoderDecoder::recompute_layers().
  void recompute_layers(bool recompute) { recomputes_layers_ = recompute; }
  /// Names the input, the layers by their numbers, and the norm.
  void visit(ParameterVisitor& visitor) override;
  /// The table of token embeddings, to be tied.
  Embedding& embedding() { return input_.embedding(); }

 protected:
  /// The output after the last layer. Each layer gets its own `cross_weights`, and caches of `state`.
  Tensor through_layers(const Tensor& embedded, const Tensor& memory, TransformerLayerContext context,
                        std::vector<Tensor>* cross_weights = nullptr, DecoderState* state = nullptr) const;

  TokenInput input_;                      ///< embeddings and positions
  std::vector<TransformerLayer> layers_;  ///< from the first to the last
  std::optional<Norm> norm_;              ///< at the end of pre-norm stacks
  double output_scale_;                   ///< of the states
  bool recomputes_layers_ = false;        ///< see recompute_layers()
};

/// Maps token ids to contextual states; can be used alone, for example under a masked-token head.
/// Shapes:  ids i32 [B, S], mask bool [B, S] (true = token, or undefined) -> [B, S, C]
class Encoder : public LayerStack {
 public:
  Encoder(const EncoderDecoderConfig& config, Generator& random)
      : LayerStack(config, random, TransformerSide::encoder) {}
  Tensor operator()(const Tensor& ids, const Tensor& mask = {}, LayerRecord* record = nullptr) const;
};

/// Maps target ids and the encoder's states to the decoder's states.
/// Shapes:  ids i32 [B, T], memory [B, S, C], memory_mask bool [B, S] (true = token) or undefined
///          -> [B, T, C]
class Decoder : public LayerStack {
 public:
  Decoder(const EncoderDecoderConfig& config, Generator& random)
      : LayerStack(config, random, TransformerSide::decoder) {}
  /// `cross_weights` receives the cross-attention weights [B, H, T, S] of every layer.
  Tensor operator()(const Tensor& ids, const Tensor& memory, const Tensor& memory_mask = {},
                    std::vector<Tensor>* cross_weights = nullptr, LayerRecord* record = nullptr) const;
  /// The states of tokens that follow those in `state`, and appends them there. Never recorded.
  Tensor operator()(const Tensor& ids, DecoderState& state) const;
  /// The state of empty sequences, one for every row of the memory.
  DecoderState start(const Tensor& memory, const Tensor& memory_mask, const CacheConfig& config = {}) const;
};

/// The transformer of "Attention is all you need", pre- or post-norm.
/// Source:  Vaswani et al. 2017, arXiv:1706.03762
class EncoderDecoder : public Module {
 public:
  EncoderDecoder(const EncoderDecoderConfig& config, Generator& random);
  /// Loads a trained model from a run folder (config.json, weights.safetensors), in evaluation mode.
  /// Throws: CheckpointError
  static EncoderDecoder load(const std::string& folder);

  /// Teacher forcing: the logits of every next target token.
  /// Shapes:  source i32 [B, S], source_mask bool [B, S], target i32 [B, T] -> [B, T, V]
  Tensor operator()(const Tensor& source, const Tensor& source_mask, const Tensor& target) const;
  /// Mean cross-entropy, in nats, of the expected next tokens; in training with the losses of routers, each a
  /// mean over the layers of both sides.
  /// Shapes:  expected i32 [B, T], the others as above -> []
  Tensor loss(const Tensor& source, const Tensor& source_mask, const Tensor& target, const Tensor& expected,
              const CrossEntropyOptions& options = {}, const HeadLossConfig& head = {}) const;

  /// The memory of source sentences: as Encoder.
  Tensor encode(const Tensor& source, const Tensor& source_mask, LayerRecord* record = nullptr) const {
    return encoder_(source, source_mask, record);
  }
  /// Teacher forcing; `cross_weights` receives every layer's cross-attention weights [B, H, T, S].
  Tensor decode(const Tensor& target, const Tensor& memory, const Tensor& memory_mask,
                std::vector<Tensor>* cross_weights = nullptr, LayerRecord* record = nullptr) const {
    return decoder_(target, memory, memory_mask, cross_weights, record);
  }
  /// One step of generation: the states of new tokens after those that `state` already holds.
  Tensor decode(const Tensor& target, DecoderState& state) const { return decoder_(target, state); }
  /// As Decoder::start().
  DecoderState start(const Tensor& memory, const Tensor& memory_mask, const CacheConfig& cache = {}) const {
    return decoder_.start(memory, memory_mask, cache);
  }
  /// Shapes:  states [..., C] -> [..., V]
  Tensor logits(const Tensor& states) const { return head_(states); }
  /// The device of its parameters, where inputs must be too.
  Device device() const { return head_.weight().value().device(); }

  /// Activation checkpointing: a tape keeps only each layer's input and recomputes the rest in the backward
  /// pass. The results are the same to the last bit. The model must live and keep its mode until that pass.
  /// Calls that fill a LayerRecord or cross_weights keep everything.
  /// Throws:  Error as DecoderOnly's
  void recompute_layers(bool recompute);

  void visit(ParameterVisitor& visitor) override;
  /// The configuration of the model.
  const EncoderDecoderConfig& config() const { return config_; }

 private:
  EncoderDecoderConfig config_;
  Encoder encoder_;
  Decoder decoder_;
  Head head_;
};

}  // namespace tapeformer
