#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

Family bloom_family() {
  const auto describe = [](ConfigMap& map) {
    const auto either = [&](const char* name, const char* other) {
      return map.reads && map.reads->has(other) ? other : name;
    };
    map.field("vocab_size", "vocabulary");
    map.field("seq_length", "context", 2048);  // which transformers does not read
    map.field(either("hidden_size", "n_embed"), "width");
    map.field(either("n_layer", "num_hidden_layers"), "layers");
    map.field(either("n_head", "num_attention_heads"), "heads");
    fix_heads(map);
    map.fixed("gated", false);
    map.fixed("activation", std::string("gelu_tanh"));
    map.has({"feed_forward"});
    if (map.fits && map.model.feed_forward != 4 * map.model.width) map.model.feed_forward = 0;
    map.field("layer_norm_epsilon", "epsilon", 1e-5);
    map.fixed("embedding_norm", true);
    map.fixed("positions", std::string("alibi"));
    map.field("hidden_dropout", "residual_dropout", 0.0);
    map.field("attention_dropout", "attention_dropout", 0.0);
    map.field("tie_word_embeddings", "tie_head", true);
    map.demand("apply_residual_connection_post_layernorm", false);
    map.demand("slow_but_exact", false);  // which leaves out biases, if pretraining_tp is above 1
    // The order and precision of computations, and fields that transformers does not read.
    map.ignore({"pretraining_tp", "attention_softmax_in_fp32", "masked_softmax_fusion", "bias_dropout_fusion",
                "skip_bias_add", "skip_bias_add_qkv", "offset_alibi", "n_inner", "unk_token_id"});
    // Biases that a model lacks are written as zeros.
    map.has({"attention_bias", "attention_output_bias", "feed_forward_bias", "rotary_*"});
  };
  const auto in_layer = [](const char* name) { return std::string("transformer.h.*.") + name; };
  return {"bloom",
          "BLOOM",
          "BloomForCausalLM",
          describe,
          {{{"embedding", {"transformer.word_embeddings"}},
            {"embedding_norm", {"transformer.word_embeddings_layernorm"}},
            {"layers.*.attention_norm", {in_layer("input_layernorm")}},
            {"layers.*.attention.query_key_value", {in_layer("self_attention.query_key_value")}},
            {"layers.*.attention.output", {in_layer("self_attention.dense")}},
            {"layers.*.feed_forward_norm", {in_layer("post_attention_layernorm")}},
            {"layers.*.feed_forward.up", {in_layer("mlp.dense_h_to_4h")}},
            {"layers.*.feed_forward.down", {in_layer("mlp.dense_4h_to_h")}},
            {"norm", {"transformer.ln_f"}},
            {"head", {"lm_head"}}},
           {},
           kAllBiases | kByHead}};
}

}  // namespace tapeformer
