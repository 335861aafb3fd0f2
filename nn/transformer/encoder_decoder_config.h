#pragma once

#include <tapeformer/nn/adapter.h>
#include <tapeformer/nn/positions.h>
#include <tapeformer/nn/transformer/transformer_layer.h>

namespace tapeformer {

/// The configuration of a translation model.
struct EncoderDecoderConfig {
  TransformerLayerConfig layer;    ///< of every layer
  Index decoder_heads = 0;         ///< H of the decoder's layers; 0 for that of `layer`
  Index decoder_feed_forward = 0;  ///< F of the decoder's layers; 0 for that of `layer`
  /// V of either side.
  Index source_vocabulary = 0, target_vocabulary = 0;
  /// L of either side.
  Index encoder_layers = 3, decoder_layers = 3;
  PositionKind positions = PositionKind::sinusoidal;  ///< rotary, alibi and buckets act in layer.attention
  Index max_length = 256;                             ///< longest source or target, in tokens
  bool tie_target_head = true;                        ///< the output head's weight is the target embedding
  bool tie_embeddings = false;  ///< source and target share their embedding (and vocabulary)
  double embedding_scale = 0;   ///< of the embeddings; 0 for sqrt(C)
  bool embedding_norm = false;  ///< the sum of embeddings and positions is normed
  bool shared_buckets = false;  ///< the layers of a side share the table of positions = buckets
  bool head_bias = true;        ///< on the logits
  double head_scale = 1;        ///< of the decoder's states, before the head
  double logit_softcap = 0;     ///< c > 0: the logits are c tanh(x / c)
  bool zero_init = false;       ///< of the projections that write into the residual sum
  AdapterConfig adapter;        ///< of the linear layers; all else is frozen then

  /// Configuration of the decoder's layers.
  TransformerLayerConfig decoder_layer() const;
  /// The text for config.json of a run folder.
  std::string to_json() const;
  /// The inverse of to_json(). A field that the text lacks takes its default.
  /// Throws: CheckpointError naming the mistake or an unknown field
  static EncoderDecoderConfig from_json(const std::string& json);
  /// Throws: Error naming the sizes that do not fit
  void check() const;

  /// Every field once, in the order of config.json and --help.
  void describe(const FieldVisitor& field);
};

}  // namespace tapeformer
