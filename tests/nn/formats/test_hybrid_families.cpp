#include <tapeformer/tests/nn/formats/family_case.h>

using namespace tapeformer;

TEST_CASE("families of hybrids are read as what they are, and written as what was read") {
  check_readings({
      {"qwen3_next", R"("num_experts": 6, "num_experts_per_tok": 2)",
       "context=32768 attention=gated_deltanet qk_norm=rms qk_norm_epsilon=0.25 output_gate=element "
       "rotary_components=64 state_heads=32 state_key_heads=16 state_key_width=128 state_value_width=128 "
       "state_norm_epsilon=0.25 convolution_taps=4 beta_scale=1 attention_pattern=DDD full_attention=gqa "
       "head_width=256 experts=6 shared_expert=512 shared_expert_gate=true balance_loss=0"},
      {"qwen3_next",
       R"("num_experts": 6, "num_experts_per_tok": 2, "full_attention_interval": 2, "head_dim": 8,
          "partial_rotary_factor": 0.5, "rope_theta": 300, "linear_num_key_heads": 2,
          "linear_num_value_heads": 6, "linear_key_head_dim": 5, "linear_value_head_dim": 7,
          "linear_conv_kernel_dim": 3, "norm_topk_prob": false, "shared_expert_intermediate_size": 9,
          "moe_intermediate_size": 11)",
       "context=32768 attention=gated_deltanet qk_norm=rms qk_norm_epsilon=0.25 output_gate=element "
       "rotary_base=300 rotary_components=4 state_heads=6 state_key_heads=2 state_key_width=5 "
       "state_value_width=7 state_norm_epsilon=0.25 convolution_taps=3 beta_scale=1 attention_pattern=DFD "
       "full_attention=gqa head_width=8 experts=6 normalized_router=false shared_expert=9 "
       "shared_expert_gate=true balance_loss=0"},
      {"qwen3_5_text",
       R"("num_key_value_heads": 4, "layer_types": ["full_attention", "linear_attention",
          "linear_attention"], "rope_parameters": {"rope_type": "default", "rope_theta": 300,
          "partial_rotary_factor": 0.5, "mrope_section": [11, 11, 10], "mrope_interleaved": true},
          "attn_output_gate": true, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1,
          "mlp_only_layers": [], "use_sliding_window": false)",
       "context=32768 attention=gated_deltanet groups=0 qk_norm=rms qk_norm_epsilon=0.25 "
       "output_gate=element rotary_base=300 rotary_components=128 state_heads=32 state_key_heads=16 "
       "state_key_width=128 state_value_width=128 state_norm_epsilon=0.25 convolution_taps=4 beta_scale=1 "
       "attention_pattern=FDD head_width=256"},
      {"olmo_hybrid", R"("rope_theta": null)",
       "context=65536 attention=gated_deltanet qk_norm=joint qk_norm_epsilon=0.25 rotary_layout=interleaved "
       "state_heads=4 state_key_heads=2 state_key_width=5 state_value_width=7 state_norm_epsilon=1e-05 "
       "convolution_taps=4 beta_scale=2 attention_pattern=DDF full_attention=gqa positions=none "
       "sublayer_norms=mixed"},
      {"olmo_hybrid", R"("rope_parameters": {"rope_type": "default", "rope_theta": null})",
       "context=65536 attention=gated_deltanet qk_norm=joint qk_norm_epsilon=0.25 rotary_layout=interleaved "
       "state_heads=4 state_key_heads=2 state_key_width=5 state_value_width=7 state_norm_epsilon=1e-05 "
       "convolution_taps=4 beta_scale=2 attention_pattern=DDF full_attention=gqa positions=none "
       "sublayer_norms=mixed"},
      {"olmo_hybrid",
       R"("rope_theta": null, "rope_parameters": {"rope_type": "default", "rope_theta": 300},
          "linear_allow_neg_eigval": false, "attention_bias": true, "linear_conv_kernel_dim": 3,
          "linear_dt_min": 0.01)",
       "context=65536 attention=gated_deltanet qk_norm=joint qk_norm_epsilon=0.25 rotary_base=300 "
       "state_heads=4 state_key_heads=2 state_key_width=5 state_value_width=7 state_norm_epsilon=1e-05 "
       "convolution_taps=3 beta_scale=1 attention_pattern=DDF full_attention=gqa attention_bias=true "
       "sublayer_norms=mixed"},
      {"kimi_linear",
       R"("mlp_layer_types": ["dense", "dense", "sparse"], "layer_types": ["linear_attention",
          "linear_attention", "full_attention"], "q_lora_rank": 5)",
       "context=1048576 attention=kda groups=0 latent_width=7 query_latent_width=5 rotary_width=4 "
       "shared_key_rotation=false rotary_layout=interleaved decay_rank=0 state_heads=32 state_key_heads=0 "
       "state_key_width=128 state_value_width=128 state_norm_epsilon=0.25 convolution_taps=4 beta_scale=1 "
       "attention_pattern=DDF full_attention=mla head_width=3 positions=none experts=8 router=sigmoid "
       "shared_expert=18 balance_loss=0 balance=bias expert_width=9 router_scale=2.446 experts_from=2"},
      {"kimi_linear",  // as it was published
       R"("linear_attn_config": {"num_heads": 3, "head_dim": 5, "short_conv_kernel_size": 2,
          "full_attn_layers": [2], "kda_layers": [1, 3]}, "first_k_dense_replace": 1, "moe_layer_freq": 1,
          "mla_use_nope": true, "moe_router_activation_func": "sigmoid", "num_expert_group": 4,
          "topk_group": 2, "moe_renormalize": false, "rope_theta": 1e4)",
       "context=1048576 attention=kda groups=0 latent_width=7 rotary_width=4 shared_key_rotation=false "
       "rotary_layout=interleaved decay_rank=0 state_heads=3 state_key_heads=0 state_key_width=5 "
       "state_value_width=5 state_norm_epsilon=0.25 convolution_taps=2 beta_scale=1 attention_pattern=DFD "
       "full_attention=mla head_width=3 positions=none experts=8 router=sigmoid normalized_router=false "
       "shared_expert=18 balance_loss=0 balance=bias expert_width=9 router_scale=2.446 expert_groups=4 "
       "active_groups=2 experts_from=1"},
  });
}

TEST_CASE("an OLMo Hybrid has layers of both kinds, as transformers demands") {
  DecoderOnlyConfig config = hugging_face_config(file_of("olmo_hybrid").dump());
  config.attention_pattern = "DDDF";
  CHECK(message_of<CheckpointError>([&] {
          hugging_face_json(config);
        }).find("; got attention_pattern=DDDF; try attention_pattern=DDF") != std::string::npos);
}

TEST_CASE("options of hybrids' files that are not implemented are refused by name") {
  check_refusals(
      {{"qwen3_5", "",
        "model_type qwen3_5 reads images too, which is not implemented; try its language model alone, as "
        "transformers writes it with AutoModelForCausalLM.from_pretrained(this).save_pretrained(folder)"},
       {"olmo_hybrid", R"("linear_num_value_heads": null)", "linear_num_value_heads is missing"},
       {"kimi_linear", R"("mlp_layer_types": ["sparse", "dense", "sparse"])",
        "mlp_layer_types must be dense in the first layers and sparse in the others"},
       {"kimi_linear", R"("linear_attn_config": {"full_attn_layers": [2], "kda_layers": [1, 2]})",
        "linear_attn_config must have each layer in full_attn_layers or kda_layers"},
       {"kimi_linear", R"("linear_attn_config": {"full_attn_layers": [2], "kda_layers": [1, 3, 9]})",
        "linear_attn_config must have each layer in full_attn_layers or kda_layers"}});
  check_refusals(
      {{"qwen3_next", R"("num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [1])",
        "mlp_only_layers = [1]"},
       {"kimi_linear", R"("tie_word_embeddings": true)", "tie_word_embeddings = true"},
       {"kimi_linear", R"("mla_use_nope": false)", "mla_use_nope = false"},
       {"kimi_linear", R"("moe_router_activation_func": "softmax")",
        "moe_router_activation_func = \"softmax\""},
       {"qwen3_5_text", R"("attention_bias": true)", "attention_bias = true"},
       {"qwen3_5_text", R"("hidden_act": "gelu")", "hidden_act = \"gelu\""},
       {"qwen3_5_text", R"("layer_types": ["linear_attention", "sliding_attention", "full_attention"])",
        "layer_types = sliding_attention"},
       {"qwen3_5_text", R"("rope_parameters": {"rope_type": "yarn", "factor": 2})",
        "rope_parameters.rope_type = \"yarn\""}},
      kNotImplemented);
  check_refusals({{"olmo_hybrid", R"("full_attention_interval": 2)", "full_attention_interval"}}, kUnknown);
}
