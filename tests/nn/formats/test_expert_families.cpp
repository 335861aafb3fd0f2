#include <tapeformer/tests/nn/formats/family_case.h>

using namespace tapeformer;

TEST_CASE("gpt-oss is read as what it is, and written as what was read") {
  check_readings({
      {"gpt_oss",
       R"("rope_parameters": {"rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1,
          "truncate": false, "original_max_position_embeddings": 4096}, "experts_per_token": 2,
          "initial_context_length": 4096)",
       "context=131072 sinks=true rotary_base=150000 rotary_factor=32 rotary_original_context=4096 "
       "rotary_high_frequency=32 rotary_yarn=true rotary_whole_pairs=false rotary_attention_factor=1.34657 "
       "head_width=64 attention_bias=true window=128 windows=SLS swiglu_limit=7 feed_forward_bias=true "
       "experts=6 balance_loss=0"},
      {"gpt_oss",
       R"("rope_parameters": {"rope_type": "default", "rope_theta": 300}, "head_dim": 6, "swiglu_limit": 0.5,
          "swiglu_alpha": 2, "sliding_window": 5, "attention_bias": false, "output_router_logits": true,
          "router_aux_loss_coef": 0.25, "layer_types": ["full_attention", "full_attention",
          "full_attention"])",
       "context=131072 sinks=true rotary_base=300 swiglu_limit=0.5 swiglu_alpha=2 feed_forward_bias=true "
       "experts=6 balance_loss=0.5"},
  });
}

TEST_CASE("options of gpt-oss that are not implemented are refused by name") {
  check_refusals({{"gpt_oss", R"("swiglu_limit": 0)", "swiglu_limit must be a positive number; got 0"},
                  {"gpt_oss", R"("rope_parameters": null)",
                   "rope_parameters is missing, which means YaRN to transformers"}});
  check_refusals({{"gpt_oss", R"("hidden_act": "gelu")", "hidden_act = \"gelu\""},
                  {"gpt_oss", R"("experts_per_token": 3)", "experts_per_token = 3"},
                  {"gpt_oss", R"("layer_types": ["chunked_attention"])", "layer_types = chunked_attention"}},
                 kNotImplemented);
  check_refusals({{"gpt_oss", R"("shared_expert_intermediate_size": 4)", "shared_expert_intermediate_size"}},
                 kUnknown);
}
