#pragma once

#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/feed_forward.h>
#include <tapeformer/nn/norm.h>
#include <tapeformer/nn/positions.h>

#include <algorithm>
#include <string>

namespace tapeformer {

/// The layers that have a table of value embeddings: none, the first and the last, every second one up to
/// the last, or all.
enum class ValueEmbeddings { none, ends, alternate, all };
const char* name_of(ValueEmbeddings layers);
/// Throws: Error listing the valid names.
ValueEmbeddings value_embeddings(const std::string& name);

/// The norms of a model's sublayers: of what they read (pre-norm), of what they add to the sum (as in
/// OLMo 2), or both (as in Gemma 2).
enum class SublayerNorms { input, output, both };
const char* name_of(SublayerNorms norms);
/// Throws: Error listing the valid names.
SublayerNorms sublayer_norms(const std::string& name);

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

  NormKind norm = NormKind::layer;  ///< before each sublayer and before the head
  double epsilon = 1e-5;
  bool norm_bias = true;                                ///< layer norm's
  SublayerNorms sublayer_norms = SublayerNorms::input;  ///< where sublayers have norms

  PositionKind positions = PositionKind::learned;  ///< rotary ones turn queries and keys

  Index window = 0;               ///< W, tokens that a query of a layer with a window sees, its own included
  std::string windows;            ///< the layers that have the window, as in "SSSL": see has_window()
  double window_rotary_base = 0;  ///< rotary base of the layers that have it; 0 for that of the others

  Index feed_forward = 0;               ///< F; 0 for 4 C, gated 8 C / 3 rounded up to a multiple of 32
  Unary activation = Unary::gelu_tanh;  ///< of the feed-forward networks
  bool gated = false;                   ///< with silu: swiglu
  bool feed_forward_bias = true;        ///< biases in the feed-forward networks

  bool tie_head = true;      ///< the head's weight is the embedding
  bool head_bias = false;    ///< a bias on the logits
  double logit_softcap = 0;  ///< c > 0: the logits are c tanh(x / c)

  double embedding_scale = 1;     ///< of the embeddings; 0 for sqrt(C)
  bool embedding_norm = false;    ///< of what enters the first layer
  bool embedding_mixing = false;  ///< every layer begins with x = a x + b x_0: see DecoderOnly
  ValueEmbeddings value_embeddings = ValueEmbeddings::none;
  bool value_residual = false;  ///< the first layer's values join those of the others
  Index kv_sharing = 1;         ///< layers in a row that share the keys and values of the first of them
  Index short_convolution = 0;  ///< K of a ShortConvolution of what each sublayer reads; 0 for none
  bool fix_norm = false;        ///< word embeddings of one length, see TokenInput and Head
  bool zero_init = false;       ///< of the matrices that write into the residual sum

  double embedding_dropout = 0, residual_dropout = 0;  ///< on what enters the layers, and what sublayers add
  double feed_forward_dropout = 0;                     ///< after the activation
  double stochastic_depth = 0;  ///< the last layer's probability of dropping a row of what a sublayer adds

  bool prefix = false;  ///< trained with a prompt that sees itself in both directions

  /// F, with 0 replaced by what it stands for.
  Index hidden_width() const;
  /// True for the layers with the sliding window: those of an S in `windows`, which is repeated over the
  /// layers, the last of them an L, unless it has a letter for each layer; without `windows` all.
  bool has_window(Index layer) const;
  /// True for the layers of an F in `attention_pattern`.
  bool has_full_attention(Index layer) const;
  /// True for the layers that `window_rotary_base` is for.
  bool has_window_base(Index layer) const { return window_rotary_base > 0 && has_window(layer); }
  /// True for the layers that have keys and values of their own.
  bool has_keys(Index layer) const { return layer % kv_sharing == 0; }
  /// True for the layers that `value_embeddings` names.
  bool has_value_embedding(Index layer) const;
  /// `attention` of a layer, from 0, with what the model decides. With a window_rotary_base the rotary
  /// positions of layers with the window have that base, and no scaling.
  AttentionConfig attention_config(Index layer = 0) const;
  /// Throws: Error naming the fields that do not fit
  void check() const;

  /// For config.json of a run folder. A field that it lacks takes its default.
  /// Throws: CheckpointError naming what is wrong, or a field that is not known
  std::string to_json() const;
  /// The opposite of to_json().
  static DecoderOnlyConfig from_json(const std::string& json);

  /// Every field once, in the order of config.json and --help: see autograd/text/config_field.h.
  template <class Self, class F>
  static void for_each(Self& c, const F& field) {
    field("vocabulary", c.vocabulary, kPositiveSize);
    field("layers", c.layers, "L, number of layers", kPositiveSize);
    field("width", c.width, "C, width of the states; a multiple of the heads", kPositiveSize);
    field("context", c.context, "most tokens that the model looks back on", kPositiveSize);
    AttentionConfig::for_each_in_models(c.attention, field, kCanModelLanguage);
    field("attention_pattern", c.attention_pattern,
          "a letter for each layer, repeated: D for --attention, F for --full-attention, as in DDDF");
    field("full_attention", c.full_attention, "the attention of the layers F of the pattern");
    field("head_width", c.attention.key_width, "D, width of a head; 0 for C / H", kSize);
    field("attention_bias", c.attention.bias);
    field("attention_output_bias", c.attention.output_bias);
    field("attention_dropout", c.attention.dropout, "share of attention weights dropped", kBelowOne);
    field("positions", named(c.positions, name_of, position_kind),
          "learned, sinusoidal, rotary, alibi, buckets (of distances, as in T5) or none");
    field("window", c.window, "tokens that layers with a sliding window see, the own one included; 0 for all",
          kSize);
    field(
        "windows", c.windows,
        "layers with the window (S) and without (L), such as SSSL, repeated, and L for the last layer, or a "
        "letter for each layer; empty: all have it");
    field("window_rotary_base", c.window_rotary_base,
          "base of the rotary frequencies in layers with a sliding window, which are not scaled then; 0 for "
          "rotary_base with its scaling",
          kNotNegative);
    field("norm", named(c.norm, name_of, norm_kind), "layer, rms or scale, before every sublayer");
    field("epsilon", c.epsilon, "of the norms", kPositive);
    field("norm_bias", c.norm_bias);
    field("sublayer_norms", named(c.sublayer_norms, name_of, tapeformer::sublayer_norms),
          "norms of each sublayer's input, of its output, or of both");
    field("feed_forward", c.feed_forward,
          "F, hidden width of the feed-forward networks; 0 for 4 C, gated 8/3 C", kSize);
    field("activation", named(c.activation, name_of, activation_named));
    field("gated", c.gated);
    field("feed_forward_bias", c.feed_forward_bias);
    field("tie_head", c.tie_head);
    field("head_bias", c.head_bias);
    field("logit_softcap", c.logit_softcap, "c: logits become c tanh(logits / c); 0 for none", kNotNegative);
    field("embedding_scale", c.embedding_scale, kNotNegative);
    field("embedding_norm", c.embedding_norm, "norm of the embeddings, before the first layer");
    field("embedding_mixing", c.embedding_mixing,
          "let every layer begin with a x + b x0, a and b learned, x0 the input of the first");
    field("value_embeddings", named(c.value_embeddings, name_of, tapeformer::value_embeddings),
          "layers that add embeddings of the tokens to attention's values: none, ends, alternate or all");
    field("value_residual", c.value_residual,
          "mix the first layer's values into those of the others, by learned factors (mha, gqa, mqa)");
    field("kv_sharing", c.kv_sharing,
          "layers in a row that share the keys and values of the first of them (mha, gqa, mqa); 1 for none",
          kPositiveSize);
    field("short_convolution", c.short_convolution,
          "K, tokens of a causal convolution before attention and feed-forward networks; 0 for none", kSize);
    field("fix_norm", c.fix_norm, "word embeddings of one length, for input and output");
    field("zero_init", c.zero_init, "zeros at first in the matrices that write into the residual sum");
    field("embedding_dropout", c.embedding_dropout, "share of what enters the first layer dropped",
          kBelowOne);
    field("residual_dropout", c.residual_dropout, "share of what sublayers add dropped", kBelowOne);
    field("feed_forward_dropout", c.feed_forward_dropout,
          "share of the hidden activations of the feed-forward networks dropped", kBelowOne);
    field("stochastic_depth", c.stochastic_depth,
          "share of rows that the last layer leaves as they are, and earlier ones in proportion", kBelowOne);
    field("prefix", c.prefix, "let a prompt see itself in both directions, and train on what follows it");
  }

 private:
  void check_layer(Index layer) const;
};

/// Calls use(attention) for the attention of each layer.
template <class Use>
void for_each_attention(const DecoderOnlyConfig& config, const Use& use) {
  for (Index i = 0; i < config.layers; ++i) use(config.attention_config(i));
}

}  // namespace tapeformer
