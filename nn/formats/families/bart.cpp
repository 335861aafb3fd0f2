#include <tapeformer/nn/formats/families/families.h>

#include <optional>

namespace tapeformer {
namespace {

/// A dropout rate, which is unset in our configuration if it equals `dropout`.
void describe_share(TranslationMap& map, const char* theirs, std::optional<double>& ours, double otherwise) {
  const double dropout = map.model.layer.dropout;
  if (map.reads) ours = map.reads->rate(theirs, otherwise);
  if (map.reads && ours == dropout) ours.reset();
  if (map.writes) (*map.writes)[theirs] = ours.value_or(dropout);
}

/// Vocabularies, sizes and heads of either side, activations, dropouts and the scale of embeddings of BART
/// and its relatives, with the defaults of activation_function, scale_embedding and attention_dropout.
void describe_bart_sizes(TranslationMap& map, const char* activation = "gelu", bool is_scaled = false,
                         double attention_dropout = 0) {
  EncoderDecoderConfig& model = map.model;
  map.field("vocab_size", "source_vocabulary");
  map.size("decoder_vocab_size", "target_vocabulary", model.target_vocabulary, model.source_vocabulary);
  map.field("max_position_embeddings", "max_length", 1024);
  map.field("d_model", "width", 1024);
  map.field("encoder_layers", "encoder_layers", 12);
  map.demand("num_hidden_layers", model.encoder_layers);  // another name
  map.field("decoder_layers", "decoder_layers", 12);
  map.field("encoder_attention_heads", "heads", 16);
  map.size("decoder_attention_heads", "decoder_heads", model.decoder_layer().attention.heads, 16);
  map.size("encoder_ffn_dim", "feed_forward", model.layer.hidden_width(), 4096);
  map.size("decoder_ffn_dim", "decoder_feed_forward", model.decoder_layer().hidden_width(), 4096);
  map.has({"attention", "key_width", "value_width"});
  if (map.reads && model.decoder_heads == model.layer.attention.heads) model.decoder_heads = 0;
  if (map.reads && model.decoder_feed_forward == model.layer.feed_forward) model.decoder_feed_forward = 0;
  if (map.fits) fit_bart_heads(model);
  map.activation("activation_function", activation, false);
  map.field("dropout", "dropout", 0.1);
  describe_share(map, "attention_dropout", model.layer.attention_dropout, attention_dropout);
  describe_share(map, "activation_dropout", model.layer.feed_forward_dropout, 0);
  map.has({"embedding_scale"});
  if (map.reads) model.embedding_scale = map.reads->flag("scale_embedding", is_scaled) ? 0 : 1;
  if (map.writes) (*map.writes)["scale_embedding"] = model.embedding_scale == 0;
  if (map.fits && model.embedding_scale != 1) model.embedding_scale = 0;
  // The deviation of initial weights, heads for other tasks, and fields that transformers no longer reads.
  map.ignore({"init_std", "classif_dropout", "classifier_dropout", "extra_pos_embeddings",
              "force_bos_token_to_be_generated"});
}

/// One table for both sides and the head.
void describe_one_vocabulary(TranslationMap& map) {
  map.fixed("tie_embeddings", true);
  map.fixed("tie_target_head", true);
  map.demand("tie_word_embeddings", true);
  if (map.fits) map.model.target_vocabulary = map.model.source_vocabulary;
}

void describe_bart_norms(TranslationMap& map, bool norm_first, bool of_embeddings) {
  map.fixed("norm", std::string("layer"));
  map.fixed("norm_first", norm_first);
  map.fixed("epsilon", 1e-5);
  map.fixed("embedding_norm", of_embeddings);
  // Fields that earlier versions wrote.
  map.demand("normalize_before", norm_first);
  map.demand("normalize_embedding", of_embeddings);
  map.demand("add_final_layer_norm", norm_first);
  map.demand("add_bias_logits", false);
  map.demand("do_blenderbot_90_layernorm", false);
}

/// BART, or with norm_first mBART.
void describe_bart(TranslationMap& map, bool norm_first) {
  describe_bart_sizes(map);
  for (const char* const name : {"encoder_layerdrop", "decoder_layerdrop"}) map.demand(name, 0.0);
  describe_one_vocabulary(map);
  describe_bart_norms(map, norm_first, true);
  map.fixed("positions", std::string("learned"));
  map.demand("static_position_embeddings", false);
}

TensorNames bart_names() {
  TensorNames names{{{"encoder.embedding", {"model.encoder.embed_tokens"}},
                     {"encoder.positions", {"model.encoder.embed_positions"}},
                     {"encoder.embedding_norm", {"model.encoder.layernorm_embedding"}}}};
  const auto add_stack = [&](const std::string& side) {
    const auto add = [&](const std::string& ours, const std::vector<std::string>& theirs) {
      TensorName name{side + ".*." + ours, {}};
      for (const std::string& part : theirs) name.theirs.push_back("model." + side + ".layers.*." + part);
      names.list.push_back(name);
    };
    const auto add_attention = [&](const std::string& ours, const std::string& theirs) {
      const std::string query = theirs + ".q_proj", key = theirs + ".k_proj", value = theirs + ".v_proj";
      add(ours + ".query_key_value", {query, key, value});
      add(ours + ".query", {query}), add(ours + ".key", {key}), add(ours + ".value", {value});
      add(ours + ".output", {theirs + ".out_proj"}), add(ours + "_norm", {theirs + "_layer_norm"});
    };
    add_attention("self_attention", "self_attn");
    if (side == "decoder") add_attention("cross_attention", "encoder_attn");
    add("feed_forward.up", {"fc1"}), add("feed_forward.down", {"fc2"});
    add("feed_forward_norm", {"final_layer_norm"});
  };
  add_stack("encoder");
  names.list.push_back({"encoder.norm", {"model.encoder.layer_norm"}});
  names.list.push_back({"decoder.embedding", {"model.decoder.embed_tokens"}});
  names.list.push_back({"decoder.positions", {"model.decoder.embed_positions"}});
  names.list.push_back({"decoder.embedding_norm", {"model.decoder.layernorm_embedding"}});
  add_stack("decoder");
  names.list.push_back({"decoder.norm", {"model.decoder.layer_norm"}});
  names.list.push_back({"head.weight", {"lm_head.weight"}});
  names.list.push_back({"head.bias", {"final_logits_bias"}});
  names.optional = "final_logits_bias";
  names.shared_embedding = "model.shared.weight";
  names.constants = {"encoder.version", "decoder.version"};  // of fairseq
  names.unused_positions = 2;  // in BART positions once began after padding's id
  return names;
}

/// Embeddings of both sides and the head in one table, or in one per side, with the head tied or not.
void describe_ties(TranslationMap& map) {
  EncoderDecoderConfig& model = map.model;
  map.has({"tie_embeddings", "tie_target_head"});
  if (map.reads) {
    model.tie_embeddings = map.reads->flag("share_encoder_decoder_embeddings", true);
    model.tie_target_head = map.reads->flag("tie_word_embeddings", true);
    if (model.tie_embeddings && !model.tie_target_head)
      map.reads->fail("tie_word_embeddings",
                      "= false unties shared embeddings too, which is not implemented");
  }
  if (map.writes) {
    (*map.writes)["share_encoder_decoder_embeddings"] = model.tie_embeddings;
    (*map.writes)["tie_word_embeddings"] = model.tie_target_head;
  }
  if (map.fits && model.tie_embeddings) model.tie_target_head = true;
}

void describe_marian(TranslationMap& map) {
  describe_bart_sizes(map);
  for (const char* const name : {"encoder_layerdrop", "decoder_layerdrop"}) map.demand(name, 0.0);
  map.fixed("positions", std::string("sinusoidal_halves"));
  describe_ties(map);
  describe_bart_norms(map, false, false);
  map.demand("static_position_embeddings", true);
}

}  // namespace

void fit_bart_heads(EncoderDecoderConfig& model) {
  TransformerLayerConfig& layer = model.layer;
  AttentionConfig& attention = layer.attention;
  if (attention.kind != "mha") attention = attention.of_kind("mha");
  const Index H = attention.heads;
  layer.width = (layer.width + H - 1) / H * H;
  if (model.decoder_heads > 0 && layer.width % model.decoder_heads != 0) model.decoder_heads = 0;
  const Index decoder_heads = model.decoder_layer().attention.heads;
  for (Index* const width : {&attention.key_width, &attention.value_width})
    if (*width * H != layer.width || H != decoder_heads) *width = 0;
}

TranslationFamily bart_family() {
  const auto describe = [](TranslationMap& map) { describe_bart(map, false); };
  return {"bart", "BART", "BartForConditionalGeneration", describe, bart_names()};
}

TranslationFamily mbart_family() {
  const auto describe = [](TranslationMap& map) { describe_bart(map, true); };
  return {"mbart", "mBART", "MBartForConditionalGeneration", describe, bart_names()};
}

TranslationFamily marian_family() {
  TensorNames names = bart_names();
  names.constants.push_back(".embed_positions.weight");
  return {"marian", "MarianMT", "MarianMTModel", describe_marian, names};
}

TranslationFamily m2m100_family() {
  const auto describe = [](TranslationMap& map) {
    describe_bart_sizes(map, "relu", true, 0.1);
    describe_one_vocabulary(map);
    describe_bart_norms(map, true, false);
    map.fixed("positions", std::string("sinusoidal_fairseq"));
    map.fixed("head_bias", false);
    map.demand("pad_token_id", 1);  // positions are counted from the next number on
    // Layers are dropped at random in training, which we do not do.
    map.ignore({"encoder_layerdrop", "decoder_layerdrop"});
    if (map.writes)
      (*map.writes)["encoder_layerdrop"] = (*map.writes)["decoder_layerdrop"] = 0.0,
      (*map.writes)["pad_token_id"] = 1;
  };
  TensorNames names = bart_names();
  names.constants.push_back(".embed_positions.weights");
  return {"m2m_100", "M2M100", "M2M100ForConditionalGeneration", describe, names};
}

}  // namespace tapeformer
