#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/transformer/decoder_only_config.h>
#include <tapeformer/nn/transformer/load_model.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {

bool DecoderOnlyConfig::has_window(Index layer) const {
  if (window == 0) return false;
  const auto letters = static_cast<Index>(windows.size());
  if (letters == 0) return true;
  if (layer == layers - 1 && letters != layers) return false;
  return windows[static_cast<std::size_t>(layer % letters)] == 'S';
}

Index DecoderOnlyConfig::hidden_width() const {
  if (feed_forward > 0) return feed_forward;
  return gated ? (8 * width / 3 + 31) / 32 * 32 : 4 * width;
}

bool DecoderOnlyConfig::has_full_attention(Index layer) const {
  if (attention_pattern.empty()) return false;
  return attention_pattern[static_cast<std::size_t>(layer) % attention_pattern.size()] == 'F';
}

SublayerNorms DecoderOnlyConfig::norms_of(Index layer) const {
  if (sublayer_norms != SublayerNorms::mixed) return sublayer_norms;
  return has_full_attention(layer) ? SublayerNorms::output : SublayerNorms::input;
}

bool DecoderOnlyConfig::has_positions(Index layer) const {
  if (position_pattern.empty()) return true;
  return position_pattern[static_cast<std::size_t>(layer) % position_pattern.size()] != 'N';
}

AttentionConfig DecoderOnlyConfig::attention_config(Index layer) const {
  AttentionConfig config = attention;
  if (!attention_pattern.empty()) {
    const bool is_full = has_full_attention(layer);
    AttentionConfig other = attention;  // of the other letter, without the fields of its kind alone
    if (!is_full) other.kind = full_attention;
    config = other.of_kind(is_full ? full_attention : attention.kind);
  }
  config.width = width;
  config.value_width = attention.key_width;
  if (config.weighting == AttentionWeighting::sigmoid) config.sigmoid_keys = context;
  config.value_residual = value_residual && layer > 0;
  config.shared_keys = !has_keys(layer);
  if (has_window_base(layer)) {
    const RotaryConfig& rotations = attention.rotations;
    config.rotations = {window_rotary_base, rotations.layout, rotations.width, rotations.max_positions};
    config.rotations.reversed = rotations.reversed;
  }
  const AttentionKind& kind = attention_kind(config.kind);
  if (kind.uses("lambda_initial"))
    config.lambda_initial = 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(layer));
  if (kind.can & kHasState)  // which knows the order of tokens by itself, and has no weights to drop
    config.dropout = 0;
  else
    config.add_positions(has_positions(layer) ? positions : PositionKind::none);
  return config;
}

void DecoderOnlyConfig::check() const {
  const auto require = [](bool holds, const std::string& rule) {
    if (!holds) throw Error("[decoder_only] " + rule);
  };
  check_fields("decoder_only", fields_of(*this));
  const auto can_model = [](const AttentionKind& kind) { return (kind.can & kCanModelLanguage) != 0; };
  require(attention_pattern.find_first_not_of("DF") == std::string::npos,
          "attention_pattern must be of the letters D and F; got " + attention_pattern);
  for (const auto& [name, kind] :
       {std::pair("attention", &attention.kind), std::pair("full_attention", &full_attention)})
    require(can_model(attention_kind(*kind)),
            format("{} must be one of {}; got {}", name, kind_names(can_model), *kind));
  require(kv_sharing == 1 || !value_residual,
          "kv_sharing excludes value_residual, since layers that share have no values of their own");
  require(kv_sharing == 1 || window_rotary_base == 0,
          "kv_sharing excludes window_rotary_base, since layers that share keys rotate them alike");
  require(kv_sharing == 1 || position_pattern.empty(),
          "kv_sharing excludes position_pattern, since layers that share keys rotate them alike");
  require(sublayer_norms != SublayerNorms::mixed || !attention_pattern.empty(),
          "sublayer_norms=mixed differ by the letters of attention_pattern; got none; try "
          "attention_pattern=DDDF");
  require(position_pattern.find_first_not_of("RN") == std::string::npos,
          "position_pattern must be of the letters R and N; got " + position_pattern);
  require(position_pattern.empty() || positions == PositionKind::rotary,
          format("position_pattern={} needs rotary positions; try positions=rotary", position_pattern));
  require(!is_sinusoidal(positions) || embedding_scale == 1,
          "sinusoidal positions scale embeddings by sqrt(C) themselves; try embedding_scale=1");
  require(!prefix || !bidirectional, "bidirectional excludes prefix, since all tokens see each other");
  require(first_norm || sublayer_norms == SublayerNorms::input || sublayer_norms == SublayerNorms::both,
          format("first_norm=false needs norms of the sublayers' inputs; got sublayer_norms={}; try "
                 "sublayer_norms=input",
                 name_of(sublayer_norms)));
  require(windows.find_first_not_of("SL") == std::string::npos,
          "windows must consist of S and L, as SSSL does; got " + windows);
  require(windows.empty() || window > 0, format("windows={} need a window; try window=128", windows));
  require(static_cast<Index>(windows.size()) <= layers,
          format("windows must have at most one letter per layer; got {} for {} layers", windows, layers));
  check_embedded("decoder_only", fields_of(*this), attention);
  experts.check();
  swiglu.check(activation, gated);
  require(experts_from < layers,
          format("experts_from must be below layers; got {} and layers={}", experts_from, layers));
  const auto letters = static_cast<Index>(std::max<std::size_t>(attention_pattern.size(), 1));
  const Index period = letters * std::max(static_cast<Index>(windows.size() + 1), letters) *
                       static_cast<Index>(position_pattern.size() + 1);
  const bool is_biased = positions == PositionKind::alibi || positions == PositionKind::buckets;
  bool rotates_in_windows = false, is_bias_used = false;
  for (Index layer = 0; layer < std::min(layers, period); ++layer) {
    check_layer(layer);
    rotates_in_windows = rotates_in_windows || (rotates(layer) && has_window(layer));
    is_bias_used = is_bias_used || attention_config(layer).relative_bias != RelativeBias::none;
  }
  require(
      !is_biased || is_bias_used,
      format("positions={} bias scores, which a state does not have; got attention={}; try positions=none",
             name_of(positions), attention.kind));
  require(window_rotary_base == 0 || rotates_in_windows,
          format("window_rotary_base={} needs a window in layers with rotary positions; try window=128 and "
                 "positions=rotary",
                 value_text(window_rotary_base)));
}

bool DecoderOnlyConfig::rotates(Index layer) const {
  const AttentionConfig config = attention_config(layer).resolved();
  return config.rotary || (config.rotary_width > 0 && config.shared_key_rotation);
}

/// Refuses options that the kind of one layer's attention cannot have.
void DecoderOnlyConfig::check_layer(Index layer) const {
  const AttentionConfig config = attention_config(layer);
  const AttentionKind& kind = attention_kind(config.kind);
  const auto require = [&](bool holds, const char* rule, const auto& which) {
    if (!holds)
      throw Error(format("[decoder_only] {} for attention={}; got {}", rule, kind_names(which), kind.name));
  };
  const auto require_field = [&](bool is_default, const char* field, const char* rule) {
    require(is_default || kind.uses(field), rule,
            [field](const AttentionKind& other) { return other.uses(field); });
  };
  require_field(!value_residual, "value_residual", "value_residual is");
  require_field(kv_sharing == 1, "shared_keys", "kv_sharing is");
  const bool only_causal = (kind.can & kOnlyCausal) != 0;
  const auto takes_masks = [](const AttentionKind& other) {
    return (other.can & kCanModelLanguage) && !(other.can & kOnlyCausal);
  };
  require(!prefix || !only_causal, "a prefix that sees itself in both directions is", takes_masks);
  require(!bidirectional || !only_causal, "bidirectional attention is", takes_masks);
  require(!has_window(layer) || !only_causal, "a window is", takes_masks);
  const Index giver = value_residual ? 0 : layer - layer % kv_sharing;  // whose values this layer reads
  const Index own = config.resolved().key_heads(), given = attention_config(giver).resolved().key_heads();
  if (own != given)
    throw Error(
        format("[decoder_only] {} needs layers with the same number of heads of keys and values; got "
               "attention={}, full_attention={}, {} in layer {}, {} in layer {}; try one kind of attention",
               value_residual ? "value_residual" : "kv_sharing", attention.kind, full_attention, given, giver,
               own, layer));
}

void DecoderOnlyConfig::require_causal() const {
  if (bidirectional)
    throw Error(
        "[decoder_only] an encoder cannot continue a text, since all its tokens see each other; got "
        "bidirectional=true; try a text with mask tokens ([MASK]), or a model trained with --objective next");
}

void DecoderOnlyConfig::describe(const FieldVisitor& field) {
  field("vocabulary", vocabulary, kPositiveSize);
  field("layers", layers, "L, number of layers", kPositiveSize);
  field("width", width, "C, width of the states; a multiple of the heads", kPositiveSize);
  field("context", context, "the most tokens that the model looks back on", kPositiveSize);
  attention.describe_in_models(field, kCanModelLanguage);
  field("attention_pattern", attention_pattern,
        "a letter for each layer, repeated: D for --attention, F for --full-attention, as in DDDF");
  field("full_attention", full_attention, "the attention of the layers F of the pattern");
  field("head_width", attention.key_width, "D, width of a head; 0 for C / H", kSize);
  field("attention_bias", attention.bias);
  field("attention_output_bias", attention.output_bias);
  field("attention_dropout", attention.dropout, "share of attention weights dropped", kBelowOne);
  const FieldVisitor in_positions = field.in_part(AttentionConfig::kPositionsPart),
                     in_multi_head = field.in_part(AttentionConfig::kMultiHeadPart);
  in_positions(
      "positions", named(positions),
      "learned, sinusoidal, sinusoidal_halves (sines before cosines), rotary, alibi, buckets (of distances, "
      "as in T5) or none");
  in_positions("position_pattern", position_pattern);
  in_positions(
      "window", window,
      "tokens that a token sees in layers with a sliding window, itself included, or with --objective "
      "masked, half of them on either side; 0 for all",
      kSize);
  in_positions(
      "windows", windows,
      "layers with the window (S) and without (L), such as SSSL, repeated, and L for the last layer, or a "
      "letter for each layer; empty: all have it");
  in_positions(
      "window_rotary_base", window_rotary_base,
      "base of the rotary frequencies in layers with a sliding window, which are not scaled then; 0 for "
      "rotary_base with its scaling",
      kNotNegative);
  field("norm", named(norm), "layer or rms, for every sublayer");
  field("epsilon", epsilon, "epsilon of the norms", kPositive);
  field("norm_bias", norm_bias);
  field("norm_gain", norm_gain);
  field(
      "sublayer_norms", named(sublayer_norms),
      "norms of each sublayer's input, of its output, of both, mixed (of inputs in layers D of the pattern, "
      "of outputs in layers F), or of the residual sum after it (post-norm)");
  field("first_norm", first_norm);
  field("feed_forward", feed_forward, "F, hidden width of the feed-forward networks; 0 for 4 C, gated 8/3 C",
        kSize);
  field("activation", named(activation));
  field("gated", gated);
  swiglu.describe(field);
  field("feed_forward_bias", feed_forward_bias);
  experts.describe(field);
  field.in_part("experts")("experts_from", experts_from,
                           "the first layer with experts, from 0; those before have one network", kSize);
  field("tie_head", tie_head);
  field("head_bias", head_bias);
  field("logit_softcap", logit_softcap, "c: logits become c tanh(logits / c); 0 for none", kNotNegative);
  field("head_transform", head_transform);
  field("embedding_scale", embedding_scale, kNotNegative);
  field("token_types", token_types, kSize);
  field("embedding_norm", embedding_norm);
  field("residual_scale", residual_scale, kPositive);
  field("head_scale", head_scale, kPositive);
  in_multi_head("value_residual", value_residual,
                "mix the first layer's values into those of the others, by learned factors (mha, gqa, mqa)");
  in_multi_head(
      "kv_sharing", kv_sharing,
      "layers in a row that share the keys and values of the first of them (mha, gqa, mqa); 1 for none",
      kPositiveSize);
  field("short_convolution", short_convolution,
        "K, tokens of a causal convolution before attention and feed-forward networks; 0 for none", kSize);
  field("zero_init", zero_init, "initial zeros in the matrices that write into the residual sum");
  field("embedding_dropout", embedding_dropout, "share of the first layer's input dropped", kBelowOne);
  field("residual_dropout", residual_dropout, "share of the sublayers' output dropped", kBelowOne);
  field("feed_forward_dropout", feed_forward_dropout,
        "share of the hidden activations of the feed-forward networks dropped", kBelowOne);
  field("prefix", prefix);
  field("bidirectional", bidirectional);
  adapter.describe(field);
}

std::string DecoderOnlyConfig::to_json() const { return config_text("decoder_only", fields_of(*this)); }

DecoderOnlyConfig DecoderOnlyConfig::from_json(const std::string& text) {
  DecoderOnlyConfig config;
  read_config_text("decoder_only", text, fields_of(config), [&] { config.check(); });
  return config;
}

}  // namespace tapeformer
