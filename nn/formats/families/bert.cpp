#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

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

}  // namespace

void describe_masked_head(ConfigMap& map) {
  map.fixed("bidirectional", true);
  map.demand("is_decoder", false);
  map.fixed("head_transform", true);
  map.fixed("head_bias", true);
  map.fixed("tie_head", true);
  map.demand("tie_word_embeddings", true);
}

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

}  // namespace tapeformer
