#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// An encoder that predicts masked tokens: a tied head with a bias, behind a transform.
void describe_masked_head(ConfigMap& map) {
  map.fixed("bidirectional", true);
  map.demand("is_decoder", false);
  map.fixed("head_transform", true);
  map.fixed("head_bias", true);
  map.fixed("tie_head", true);
  map.demand("tie_word_embeddings", true);
}

void describe_bert(ConfigMap& map) {
  describe_states(map, 512);
  map.field("num_attention_heads", "heads");
  fix_heads(map);
  map.size("intermediate_size", "feed_forward", map.model.hidden_width(), 3072);
  map.activation("hidden_act", "gelu", false);
  map.field("layer_norm_eps", "epsilon", 1e-12);
  map.fixed("norm", std::string("layer"));
  map.fixed("sublayer_norms", std::string("sum"));
  map.fixed("embedding_norm", true);
  map.fixed("positions", std::string("learned"));
  map.demand("position_embedding_type", "absolute");
  map.field("type_vocab_size", "token_types", 2);
  if (map.fits && map.model.token_types == 0) map.model.token_types = 2;
  map.field("hidden_dropout_prob", "embedding_dropout", 0.1);
  map.field("hidden_dropout_prob", "residual_dropout", 0.1);
  map.field("attention_probs_dropout_prob", "attention_dropout", 0.1);
  describe_masked_head(map);
  // Biases that a model lacks are written as zeros.
  map.has({"attention_bias", "attention_output_bias", "feed_forward_bias", "rotary_*"});
  map.ignore({"classifier_dropout", "directionality", "pooler_fc_size", "pooler_num_attention_heads",
              "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"});  // of heads for other tasks
}

void describe_modernbert_layers(ConfigMap& map) {
  map.has({"window"});
  constexpr Index kWindow = 128;
  Index period = 3;  // of layers, the first of which has no window
  if (map.reads) {
    map.model.window = map.reads->size("local_attention", kWindow);
    period = map.reads->size("global_attn_every_n_layers", period);
  }
  if (map.writes) (*map.writes)["local_attention"] = map.model.window > 0 ? map.model.window : kWindow;
  describe_layer_types(map, [=](Index layer) { return layer % period != 0; });
  map.demand("rope_scaling", nullptr);  // which scales the positions of layers with a window too
  map.field("global_rope_theta", "rotary_base", 1.6e5);
  double& base = map.model.window_rotary_base;
  if (map.reads) base = map.reads->number("local_rope_theta", 1e4);
  if (map.writes) (*map.writes)["local_rope_theta"] = base > 0 ? base : map.model.attention.rotations.base;
  describe_both_rotations(map);
}

void describe_modernbert(ConfigMap& map) {
  describe_states(map, 8192);
  map.field("num_attention_heads", "heads");
  fix_heads(map);
  map.size("intermediate_size", "feed_forward", map.model.hidden_width(), 1152);
  // The head's transform has the activation and the biases of the feed-forward networks.
  for (const char* const name : {"hidden_activation", "classifier_activation"}) map.demand(name, "gelu");
  for (const char* const name : {"mlp_bias", "classifier_bias"}) map.demand(name, false);
  map.fixed("activation", std::string("gelu"));
  map.fixed("gated", true);
  map.fixed("feed_forward_bias", false);
  describe_biases(map);
  map.fixed("norm", std::string("layer"));
  map.field("norm_eps", "epsilon", 1e-5);
  map.field("norm_bias", "norm_bias", false);
  map.fixed("embedding_norm", true);
  map.fixed("first_norm", false);
  map.fixed("positions", std::string("rotary"));
  describe_modernbert_layers(map);
  map.field("embedding_dropout", "embedding_dropout", 0.0);
  map.field("attention_dropout", "attention_dropout", 0.0);  // which its output has there too
  map.field("mlp_dropout", "feed_forward_dropout", 0.0);
  describe_masked_head(map);
  map.demand("decoder_bias", true);
  // Fields that transformers does not read, orders of computation, and heads for other tasks.
  map.ignore({"layer_norm_eps", "position_embedding_type", "cls_token_id", "deterministic_flash_attn",
              "reference_compile", "repad_logits_with_grad", "sparse_prediction", "sparse_pred_ignore_index",
              "initializer_cutoff_factor", "classifier_pooling", "classifier_dropout"});
}

}  // namespace

Family bert_family() {
  const auto in_layer = [](const char* name) { return std::string("bert.encoder.layer.*.") + name; };
  return {"bert",
          "BERT",
          "BertForMaskedLM",
          describe_bert,
          {{{"embedding", {"bert.embeddings.word_embeddings"}},
            {"positions", {"bert.embeddings.position_embeddings"}},
            {"token_types", {"bert.embeddings.token_type_embeddings"}},
            {"embedding_norm", {"bert.embeddings.LayerNorm"}},
            {"layers.*.attention.query_key_value",
             {in_layer("attention.self.query"), in_layer("attention.self.key"),
              in_layer("attention.self.value")}},
            {"layers.*.attention.output", {in_layer("attention.output.dense")}},
            {"layers.*.attention_norm", {in_layer("attention.output.LayerNorm")}},
            {"layers.*.feed_forward.up", {in_layer("intermediate.dense")}},
            {"layers.*.feed_forward.down", {in_layer("output.dense")}},
            {"layers.*.feed_forward_norm", {in_layer("output.LayerNorm")}},
            {"head_transform", {"cls.predictions.transform.dense"}},
            {"head_norm", {"cls.predictions.transform.LayerNorm"}},
            {"head", {"cls.predictions.decoder"}},
            {"head.bias", {"cls.predictions.bias"}, 0, {"cls.predictions.decoder.bias"}}},
           // Numbers of positions, and heads for other tasks.
           {"embeddings.position_ids", ".pooler.dense.weight", ".pooler.dense.bias",
            "cls.seq_relationship.weight", "cls.seq_relationship.bias"},
           kAllBiases | kOldNorms}};
}

Family modernbert_family() {
  const auto in_layer = [](const char* name) { return std::string("model.layers.*.") + name; };
  return {"modernbert",
          "ModernBERT",
          "ModernBertForMaskedLM",
          describe_modernbert,
          {{{"embedding", {"model.embeddings.tok_embeddings"}},
            {"embedding_norm", {"model.embeddings.norm"}},
            {"layers.*.attention_norm", {in_layer("attn_norm")}},
            {"layers.*.attention.query_key_value", {in_layer("attn.Wqkv")}},
            {"layers.*.attention.output", {in_layer("attn.Wo")}},
            {"layers.*.feed_forward_norm", {in_layer("mlp_norm")}},
            {"layers.*.feed_forward.up", {in_layer("mlp.Wi")}},
            {"layers.*.feed_forward.down", {in_layer("mlp.Wo")}},
            {"norm", {"model.final_norm"}},
            {"head_transform", {"head.dense"}},
            {"head_norm", {"head.norm"}},
            {"head", {"decoder"}},
            {"head.bias", {"decoder.bias"}}}}};
}

}  // namespace tapeformer
