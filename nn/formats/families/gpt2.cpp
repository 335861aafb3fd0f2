#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

Family gpt2_family() {
  // Our defaults are a GPT-2: layer norms, learned positions, biases.
  const auto describe = [](ConfigMap& map) {
    map.field("vocab_size", "vocabulary");
    map.field("n_positions", "context", 1024);
    map.field("n_embd", "width");
    map.field("n_layer", "layers");
    map.field("n_head", "heads");
    map.size("n_inner", "feed_forward", map.model.hidden_width(), 4 * map.model.width);
    map.activation("activation_function", "gelu_new", false);
    map.field("layer_norm_epsilon", "epsilon", 1e-5);
    map.field("embd_pdrop", "embedding_dropout", 0.1);
    map.field("resid_pdrop", "residual_dropout", 0.1);
    map.field("attn_pdrop", "attention_dropout", 0.1);
    map.field("tie_word_embeddings", "tie_head", true);
    map.demand("scale_attn_weights", true);
    map.demand("scale_attn_by_inverse_layer_idx", false);
    // An order of computation for half precision, an unused size, and a head for other tasks.
    map.ignore({"reorder_and_upcast_attn", "n_ctx", "summary_type", "summary_use_proj", "summary_activation",
                "summary_proj_to_labels", "summary_first_dropout"});
    // Biases that a model lacks are written as zeros.
    map.has({"attention_bias", "attention_output_bias", "feed_forward_bias", "rotary_*"});
    fix_heads(map);
  };
  return {"gpt2",
          "GPT-2",
          "GPT2LMHeadModel",
          describe,
          {{{"embedding", {"transformer.wte"}},
            {"positions", {"transformer.wpe"}},
            {"layers.*.attention_norm", {"transformer.h.*.ln_1"}},
            {"layers.*.attention.query_key_value", {"transformer.h.*.attn.c_attn"}},
            {"layers.*.attention.output", {"transformer.h.*.attn.c_proj"}},
            {"layers.*.feed_forward_norm", {"transformer.h.*.ln_2"}},
            {"layers.*.feed_forward.up", {"transformer.h.*.mlp.c_fc"}},
            {"layers.*.feed_forward.down", {"transformer.h.*.mlp.c_proj"}},
            {"norm", {"transformer.ln_f"}},
            {"head", {"lm_head"}}},
           {".attn.bias", ".attn.masked_bias"},
           kAllBiases | kTransposed}};
}

}  // namespace tapeformer
