#include <tapeformer/nn/formats/families/families.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

/// A value of feed_forward_proj.
struct T5Network {
  const char* name;
  const char* function;  ///< the part of it in dense_act_fn
  Unary activation;
  bool gated;
};
constexpr T5Network kT5Networks[] = {{"relu", "relu", Unary::relu, false},
                                     {"gated-gelu", "gelu_new", Unary::gelu_tanh, true},
                                     {"gated-silu", "silu", Unary::silu, true},
                                     {"gated-relu", "relu", Unary::relu, true},
                                     {"gelu_new", "gelu_new", Unary::gelu_tanh, false},
                                     {"gelu", "gelu", Unary::gelu, false},
                                     {"silu", "silu", Unary::silu, false}};

void describe_network(TranslationMap& map, const char* otherwise) {
  map.has({"activation", "gated"});
  TransformerLayerConfig& layer = map.model.layer;
  const auto found = [](const auto& holds) {
    return std::find_if(std::begin(kT5Networks), std::end(kT5Networks), holds);
  };
  const auto named = [&](const std::string& name) {
    return found([&](const T5Network& network) { return name == network.name; });
  };
  const auto take = [&](const T5Network& network) {
    layer.activation = network.activation, layer.gated = network.gated;
  };
  if (map.reads) {
    const std::string name = map.reads->text("feed_forward_proj", otherwise);
    const auto network = named(name);
    if (network == std::end(kT5Networks))
      map.reads->fail("feed_forward_proj", "= " + name + " changes the arithmetic and is not implemented");
    take(*network);
    map.demand("dense_act_fn", network->function);
    map.demand("is_gated_act", network->gated);
  }
  const auto now = found([&](const T5Network& network) {
    return network.activation == layer.activation && network.gated == layer.gated;
  });
  if (map.writes) (*map.writes)["feed_forward_proj"] = now->name;
  if (map.fits && now == std::end(kT5Networks)) take(*named(layer.gated ? "gated-gelu" : "relu"));
}

/// T5 or mT5, with the defaults of feed_forward_proj, num_heads, d_ff and num_layers.
void describe_t5(TranslationMap& map, const char* feed_forward, Index heads, Index hidden, Index layers) {
  EncoderDecoderConfig& model = map.model;
  AttentionConfig& attention = model.layer.attention;
  map.field("vocab_size", "source_vocabulary");
  map.has({"target_vocabulary", "attention", "value_width"});
  if (!map.writes) model.target_vocabulary = model.source_vocabulary;
  if (map.fits && attention.kind != "mha") attention = attention.of_kind("mha");
  map.field("n_positions", "max_length", 512);
  map.field("d_model", "width", 512);
  map.field("num_heads", "heads", heads);
  map.size("d_kv", "key_width", map.reads ? 0 : model.layer.attention_config(false).resolved().key_width, 64);
  map.demand("head_dim", attention.key_width);  // another name
  if (!map.writes) attention.value_width = attention.key_width;
  map.size("d_ff", "feed_forward", model.layer.hidden_width(), hidden);
  map.field("num_layers", "encoder_layers", layers);
  map.size("num_decoder_layers", "decoder_layers", model.decoder_layers, model.encoder_layers);
  describe_network(map, feed_forward);
  map.field("relative_attention_num_buckets", "bias_buckets", 32);
  map.field("relative_attention_max_distance", "bias_distance", 128);
  map.field("dropout_rate", "dropout", 0.1);
  map.field("layer_norm_epsilon", "epsilon", 1e-6);
  map.fixed("norm", std::string("rms"));
  map.fixed("norm_first", true);
  map.fixed("positions", std::string("buckets"));
  map.fixed("shared_buckets", true);
  for (const char* const bias : {"attention_bias", "feed_forward_bias", "head_bias"}) map.fixed(bias, false);
  for (const char* const scale : {"score_scale", "embedding_scale"}) map.fixed(scale, 1.0);
  map.fixed("tie_embeddings", true);
  map.field("tie_word_embeddings", "tie_target_head", true);
  // The deviation of initial weights, and heads for other tasks.
  map.ignore({"initializer_factor", "classifier_dropout"});
}

TensorNames t5_names() {
  TensorNames names{{{"encoder.embedding", {"encoder.embed_tokens"}}}};
  for (const std::string side : {"encoder", "decoder"}) {
    const auto add = [&](const std::string& ours, const std::vector<std::string>& theirs,
                         std::size_t blocks = 0) {
      TensorName name{side + ".*." + ours, {}, blocks};
      for (const std::string& part : theirs) name.theirs.push_back(side + ".block.*.layer." + part);
      names.list.push_back(name);
    };
    const auto add_attention = [&](const std::string& ours, const std::string& theirs) {
      const std::string query = theirs + ".q", key = theirs + ".k", value = theirs + ".v";
      add(ours + ".query_key_value", {query, key, value});
      add(ours + ".query", {query}), add(ours + ".key", {key}), add(ours + ".value", {value});
      add(ours + ".output", {theirs + ".o"});
      add(ours + "_norm", {theirs.substr(0, 2) + "layer_norm"});
    };
    if (side == "decoder") names.list.push_back({"decoder.embedding", {"decoder.embed_tokens"}});
    names.list.push_back({side + ".0.self_attention.relative_bias",
                          {side + ".block.0.layer.0.SelfAttention.relative_attention_bias"}});
    add_attention("self_attention", "0.SelfAttention");
    if (side == "decoder") add_attention("cross_attention", "1.EncDecAttention");
    const std::string place = side == "decoder" ? "2." : "1.", network = place + "DenseReluDense.";
    add("feed_forward.up", {network + "wi"}, 1);
    add("feed_forward.up", {network + "wi_0", network + "wi_1"}, 2);
    add("feed_forward.down", {network + "wo"}), add("feed_forward_norm", {place + "layer_norm"});
    names.list.push_back({side + ".norm", {side + ".final_layer_norm"}});
  }
  names.list.push_back({"head.weight", {"lm_head.weight"}});
  names.shared_embedding = "shared.weight";
  names.form = kTiedByWeights;  // in config.json of transformers 5 all heads are tied
  names.constants = {".EncDecAttention.relative_attention_bias.weight"};  // of the first models, never used
  return names;
}

}  // namespace

TranslationFamily t5_family() {
  // T5 scales states before a head that is tied to the embeddings; T5 1.1 has neither scale nor tie, though
  // transformers 5 writes that it has the tie.
  const auto describe = [](TranslationMap& map) {
    describe_t5(map, "relu", 8, 2048, 6);
    EncoderDecoderConfig& model = map.model;
    const double width = static_cast<double>(model.layer.width);
    bool is_scaled = model.tie_target_head;
    if (map.reads) is_scaled = map.reads->flag("scale_decoder_outputs", is_scaled);
    map.fixed("head_scale", is_scaled ? 1 / std::sqrt(width) : 1);
  };
  return {"t5", "T5", "T5ForConditionalGeneration", describe, t5_names()};
}

TranslationFamily mt5_family() {
  const auto describe = [](TranslationMap& map) { describe_t5(map, "gated-gelu", 6, 1024, 8); };
  return {"mt5", "mT5", "MT5ForConditionalGeneration", describe, t5_names()};
}

}  // namespace tapeformer
