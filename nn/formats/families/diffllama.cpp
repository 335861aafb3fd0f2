#include <tapeformer/nn/formats/families/families.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// A head here is two of theirs, of which the second is half of all heads further on.
void describe_pairs_of_heads(ConfigMap& map) {
  map.has({"attention", "heads", "groups", "head_width"});
  DecoderOnlyConfig& model = map.model;
  AttentionConfig& attention = model.attention;
  if (map.reads) {
    const auto pairs = [&](const char* name, std::optional<Index> otherwise) {
      const Index heads = map.reads->size(name, otherwise);
      if (heads % 2 != 0) map.reads->fail(name, "must be even, as heads are pairs");
      return heads / 2;
    };
    attention.kind = "differential";
    attention.heads = pairs("num_attention_heads", std::nullopt);
    attention.groups = pairs("num_key_value_heads", 2 * attention.heads);
    attention.key_width = 2 * map.reads->size("head_dim", std::max<Index>(head_width_of(model) / 2, 1));
  }
  if (map.fits) fit_kind(model, "differential");
  if (map.fits && head_width_of(model) % 4 != 0) attention.key_width = (head_width_of(model) + 3) / 4 * 4;
  if (!map.writes) return;
  (*map.writes)["num_attention_heads"] = 2 * attention.heads;
  (*map.writes)["num_key_value_heads"] = 2 * model.attention_config().resolved().key_heads();
  (*map.writes)["head_dim"] = head_width_of(model) / 2;
}

void describe_diffllama(ConfigMap& map) {
  describe_states(map, 2048);
  describe_pairs_of_heads(map);
  describe_llama_layers(map, 1e-5);
  map.activation("hidden_act", "silu", true);
  map.has({"head_norm_epsilon"});
  AttentionConfig& attention = map.model.attention;
  if (map.reads) attention.head_norm_epsilon = map.model.epsilon;
  if (map.fits) map.model.epsilon = attention.head_norm_epsilon;
  map.fixed("head_norm_gain", false);
  describe_biases(map);
  map.demand("attention_dropout", 0.0);
  map.fixed("feed_forward_bias", false);
  describe_rotations(map);
  map.field("tie_word_embeddings", "tie_head", false);
  map.ignore({"lambda_std_dev"});  // of initial values
}

}  // namespace

Family diffllama_family() {
  return {"diffllama", "DiffLlama", "DiffLlamaForCausalLM", describe_diffllama, llama_names()};
}

}  // namespace tapeformer
