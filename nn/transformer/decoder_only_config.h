#pragma once

#include <tapeformer/nn/adapter.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/experts.h>
#include <tapeformer/nn/norm.h>
#include <tapeformer/nn/positions.h>

namespace tapeformer {

/// The norms of a model's sublayers: of their inputs (pre-norm), of their outputs before the residual sum (as
/// in OLMo 2), both (as in Gemma 2), mixed: of inputs in layers D of attention_pattern and of outputs in
/// layers F (as in OLMo Hybrid), or of the residual sum after each (post-norm, as in BERT), where no norm
/// precedes the head.
enum class SublayerNorms { input, output, both, mixed, sum };
template <>
inline constexpr EnumNames kNames<SublayerNorms>{"[decoder_only] sublayer_norms",
                                                 {"input", "output", "both", "mixed", "sum"}};

/// The configuration of a language model. The defaults are GPT-2 without dropout.
struct DecoderOnlyConfig {
  Index vocabulary = 0;  ///< V
  Index context = 256;   ///< where learned and sinusoidal positions end
  Index layers = 4;      ///< L
  Index width = 128;     ///< C

  AttentionConfig attention{"mha", 4};  ///< of the width above; values are as wide as keys
  /// A letter for each layer, repeated as often as needed: D for `attention`, F for `full_attention`, as in
  /// DDDF for a state in three layers of four and keys in the last. Empty: all D.
  std::string attention_pattern;
  std::string full_attention = "mha";  ///< the kind of the layers F

  NormKind norm = NormKind::layer;  ///< of the sublayers, and before the head
  double epsilon = 1e-5;
  bool norm_bias = true;                                ///< layer norm's
  bool norm_gain = true;                                ///< of all norms
  SublayerNorms sublayer_norms = SublayerNorms::input;  ///< where sublayers have norms
  bool first_norm = true;  ///< of the first attention's input, which the embeddings' norm may replace

  PositionKind positions = PositionKind::learned;  ///< rotary ones rotate queries and keys
  /// A letter for each layer, repeated as often as needed: R for rotary positions, N for none, as in RRRN.
  /// Empty: all R.
  std::string position_pattern;

  /// W, tokens that a query of a layer with a window sees, its own included; if bidirectional, its own and
  /// W / 2 on either side.
  Index window = 0;
  std::string windows;            ///< the layers that have the window, as in "SSSL": see has_window()
  double window_rotary_base = 0;  ///< rotary base of the layers that have it; 0 for that of the others

  Index feed_forward = 0;               ///< F; 0 for 4 C, gated 8 C / 3 rounded up to a multiple of 32
  Unary activation = Unary::gelu_tanh;  ///< of the feed-forward networks
  bool gated = false;                   ///< with silu: swiglu
  SwigluLimit swiglu;                   ///< its bounds
  bool feed_forward_bias = true;        ///< biases in the feed-forward networks
  ExpertsConfig experts;                ///< of the feed-forward networks
  Index experts_from = 0;               ///< the first layer with experts

  bool tie_head = true;      ///< the head's weight is the embedding
  bool head_bias = false;    ///< a bias on the logits
  double logit_softcap = 0;  ///< c > 0: the logits are c tanh(x / c)
  /// The head reads norm(activation(W x)), with a square matrix W, which has a bias if feed-forward networks
  /// do.
  bool head_transform = false;

  double embedding_scale = 1;  ///< of the embeddings; 0 for sqrt(C)
  Index token_types = 0;       ///< types of tokens with embeddings, of which the first is added to all tokens
  bool embedding_norm = false;  ///< a norm of the sum of embeddings and positions
  double residual_scale = 1;    ///< of what sublayers add to the residual sum
  double head_scale = 1;        ///< of the final states, before the head
  bool value_residual = false;  ///< the first layer's values join those of the others
  Index kv_sharing = 1;         ///< layers in a row that share the keys and values of the first of them
  Index short_convolution = 0;  ///< K of a ShortConvolution of each sublayer's input; 0 for none
  bool zero_init = false;       ///< of the matrices that write into the residual sum

  double embedding_dropout = 0, residual_dropout = 0;  ///< on the first layer's input, and sublayers' outputs
  double feed_forward_dropout = 0;                     ///< after the activation

  bool prefix = false;         ///< trained with a prompt that sees itself in both directions
  bool bidirectional = false;  ///< an encoder: every token sees those after it too

  AdapterConfig adapter;  ///< of the linear layers; all else is frozen then

  /// F, with 0 replaced by its default.
  Index hidden_width() const;
  /// True for the layers with the sliding window: all without `windows`, else those with an S in it. It is
  /// repeated over the layers, with an L for the last one, unless it has a letter for each layer.
  bool has_window(Index layer) const;
  /// True for the layers with an F in `attention_pattern`.
  bool has_full_attention(Index layer) const;
  /// True if routers or indexers have losses of their own.
  bool has_layer_losses() const { return experts.has_losses() || attention.has_index_loss(); }
  /// The norms of a layer's sublayers, which are not mixed.
  SublayerNorms norms_of(Index layer) const;
  /// True for the layers without an N in `position_pattern`.
  bool has_positions(Index layer) const;
  /// True for the layers that use `window_rotary_base`.
  bool has_window_base(Index layer) const { return window_rotary_base > 0 && has_window(layer); }
  /// True for the layers that rotate queries and keys by rotary positions.
  bool rotates(Index layer) const;
  /// True for the layers with experts.
  bool has_experts(Index layer) const { return experts.experts > 0 && layer >= experts_from; }
  /// True for the layers with keys and values of their own.
  bool has_keys(Index layer) const { return layer % kv_sharing == 0; }
  /// `attention` of a layer, from 0, with the fields that the model sets. With a window_rotary_base the
  /// rotary positions of layers with the window have that base, and no scaling.
  AttentionConfig attention_config(Index layer = 0) const;
  /// Throws: Error naming the fields that do not fit
  void check() const;
  /// Throws: Error for an encoder, which cannot continue a text
  void require_causal() const;

  /// The norms of sublayers, before the head, and of the embeddings.
  NormConfig norm_config() const { return {norm, width, epsilon, norm_bias, norm_gain}; }

  /// The text for config.json of a run folder.
  std::string to_json() const;
  /// The inverse of to_json(). A field that the text lacks takes its default.
  /// Throws: CheckpointError naming the mistake or an unknown field
  static DecoderOnlyConfig from_json(const std::string& json);

  /// Every field once, in the order of config.json and --help: see autograd/config/config_field.h.
  void describe(const FieldVisitor& field);

 private:
  void check_layer(Index layer) const;
};

/// Calls use(attention) for the attention of each layer.
template <class Use>
void for_each_attention(const DecoderOnlyConfig& config, const Use& use) {
  for (Index i = 0; i < config.layers; ++i) use(config.attention_config(i));
}

}  // namespace tapeformer
