#include <tapeformer/nn/formats/family.h>
#include <tapeformer/tests/nn/formats/family_case.h>

using namespace tapeformer;

TEST_CASE("each family is read as what it is, and written as what was read") {
  check_readings({
      {"gpt2", "", "context=1024 attention_dropout=0.1 embedding_dropout=0.1 residual_dropout=0.1"},
      {"gpt2",
       R"("n_positions": 11, "n_inner": 19, "activation_function": "relu", "layer_norm_epsilon": 0.5,
          "embd_pdrop": 0.25, "resid_pdrop": 0, "attn_pdrop": 0.5, "tie_word_embeddings": false)",
       "context=11 attention_dropout=0.5 epsilon=0.5 activation=relu tie_head=false embedding_dropout=0.25"},
      {"llama", "",
       "context=2048 attention=gqa groups=2 rotary_layout=half_split head_width=6 attention_bias=false "
       "positions=rotary norm=rms epsilon=0.25 activation=silu gated=true feed_forward_bias=false "
       "tie_head=false"},
      {"llama",
       R"("max_position_embeddings": 77, "num_key_value_heads": 1, "head_dim": 8, "hidden_act": "gelu",
          "rope_theta": 500000, "attention_bias": true, "attention_dropout": 0.25, "mlp_bias": true,
          "tie_word_embeddings": true, "is_llama_config": true, "rope_interleaved": false,
          "transformers.js_config": {"dtype": "q4"})",
       "context=77 attention=mqa groups=0 rotary_base=500000 head_width=8 attention_bias=true "
       "attention_dropout=0.25 activation=gelu feed_forward_bias=true tie_head=true"},
      {"llama", R"("num_key_value_heads": null, "rope_scaling": {"type": "linear", "factor": 2.5})",
       "attention=mha groups=0 rotary_factor=2.5"},
      {"llama",
       R"("rope_parameters": {"rope_type": "llama3", "rope_theta": 500, "factor": 8, "low_freq_factor": 1.5,
          "high_freq_factor": 5, "original_max_position_embeddings": 64, "attention_factor": null})",
       "rotary_base=500 rotary_factor=8 rotary_original_context=64 rotary_low_frequency=1.5 "
       "rotary_high_frequency=5"},
      {"llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 8})",
       "rotary_factor=8 rotary_original_context=2048 rotary_high_frequency=32 rotary_yarn=true "
       "rotary_attention_factor=1.20794"},
      {"mistral", "", "context=131072 window=4096"},
      {"mistral", R"("sliding_window": null)", "context=131072"},
      {"mistral", R"("sliding_window": 5, "head_dim": null)", "context=131072 window=5"},
      {"phi3",
       R"("partial_rotary_factor": 0.7, "rope_scaling": null, "resid_pdrop": 0.125, "embd_pdrop": 0.5)",
       "context=4096 rotary_components=4 residual_dropout=0.125"},
      {"phi3",  // 30 / 44 * 44 is rounded to less than 30
       R"("head_dim": 44, "sliding_window": 5, "rope_parameters": {"rope_type": "default", "rope_theta": 300,
          "partial_rotary_factor": 0.69})",
       "context=4096 rotary_base=300 rotary_components=30 head_width=44 window=5"},
      {"mixtral", R"("num_local_experts": 8, "num_experts_per_tok": 3, "sliding_window": 5)",
       "context=131072 rotary_base=1e+06 window=5 experts=8 active_experts=3 balance_loss=0"},
      {"mixtral",
       R"("num_local_experts": 8, "num_experts_per_tok": 2, "output_router_logits": true,
          "router_aux_loss_coef": 0.25)",
       "context=131072 rotary_base=1e+06 experts=8 balance_loss=0.5"},
      {"qwen3_moe", R"("num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 7)",
       "context=32768 qk_norm=rms qk_norm_epsilon=0.25 experts=6 normalized_router=false balance_loss=0"},
      {"qwen3_moe", R"("num_local_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": true,
          "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 48)",
       "context=32768 qk_norm=rms qk_norm_epsilon=0.25 experts=6 balance_loss=0"},
      {"olmoe", R"("num_experts": 6, "num_experts_per_tok": 2, "output_router_logits": true)",
       "context=4096 qk_norm=joint qk_norm_epsilon=0.25 experts=6 normalized_router=false balance_loss=0.02"},
      {"qwen2", R"("sliding_window": 7, "num_key_value_heads": null)",
       "context=32768 attention=mha groups=0 attention_bias=true attention_output_bias=false"},
      {"qwen2", R"("use_sliding_window": true, "sliding_window": 7)",  // after 28 layers without one
       "context=32768 attention_bias=true attention_output_bias=false"},
      {"qwen2", R"("use_sliding_window": true, "sliding_window": 7, "max_window_layers": 0)",
       "context=32768 attention_bias=true attention_output_bias=false window=7"},
      {"qwen2", R"("use_sliding_window": true, "max_window_layers": 0, "use_mrope": false)",
       "context=32768 attention_bias=true attention_output_bias=false window=4096"},
      {"qwen3", R"("use_sliding_window": true, "sliding_window": 7, "max_window_layers": 2)",
       "context=32768 qk_norm=rms qk_norm_epsilon=0.25 head_width=128 window=7 windows=LLS"},
      {"qwen3",
       R"("use_sliding_window": true, "sliding_window": 7, "max_window_layers": 0,
          "layer_types": ["sliding_attention", "full_attention", "full_attention"], "attention_bias": true)",
       "context=32768 qk_norm=rms qk_norm_epsilon=0.25 head_width=128 attention_bias=true window=7 "
       "windows=SLL"},
      {"smollm3", R"("no_rope_layers": [1, 0, 1], "no_rope_layer_interval": 2, "sliding_window": 7,
                     "max_window_layers": 28)",
       "context=32768 rotary_base=2e+06 position_pattern=RNR tie_head=true"},
      {"smollm3",
       R"("no_rope_layers": [1, 0, 1], "use_sliding_window": true, "sliding_window": 7,
          "attention_bias": true, "mlp_bias": true, "rope_parameters": {"rope_type": "linear",
          "rope_theta": 300, "factor": 8})",
       "context=32768 rotary_base=300 rotary_factor=8 attention_bias=true position_pattern=RNR window=7 "
       "windows=LSL feed_forward_bias=true tie_head=true"},
      {"smollm3",
       R"("no_rope_layers": [1, 1, 1], "use_sliding_window": true, "sliding_window": 7,
          "layer_types": ["sliding_attention", "full_attention", "full_attention"], "mlp_bias": true)",
       "context=32768 rotary_base=2e+06 window=7 windows=SLL feed_forward_bias=true tie_head=true"},
      {"olmo2", "", "qk_norm=joint qk_norm_epsilon=0.25 sublayer_norms=output"},
      {"olmo3", R"("num_hidden_layers": 5)",
       "qk_norm=joint qk_norm_epsilon=0.25 rotary_base=500000 window=4096 windows=SSSLS "
       "sublayer_norms=output"},
      {"olmo3",
       R"("layer_types": ["sliding_attention", "full_attention", "full_attention"], "rope_theta": 300,
          "rope_scaling": {"rope_type": "yarn", "factor": 8})",
       "qk_norm=joint qk_norm_epsilon=0.25 rotary_base=300 rotary_factor=8 rotary_original_context=2048 "
       "rotary_high_frequency=32 rotary_yarn=true rotary_attention_factor=1.20794 window=4096 windows=SLL "
       "window_rotary_base=300 sublayer_norms=output"},
      {"olmo3",
       R"("layer_types": ["sliding_attention", "full_attention", "full_attention"],
          "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 300},
          "sliding_attention": {"rope_type": "default", "rope_theta": 7}}, "sliding_window": 5)",
       "qk_norm=joint qk_norm_epsilon=0.25 rotary_base=300 rotary_factor=8 window=5 windows=SLL "
       "window_rotary_base=7 sublayer_norms=output"},
      {"granite", "", "score_scale=1"},
      {"granite",
       R"("embedding_multiplier": 12, "attention_multiplier": 0.015625, "residual_multiplier": 0.22,
          "logits_scaling": 8, "mlp_bias": true)",
       "score_scale=0.015625 feed_forward_bias=true embedding_scale=12 residual_scale=0.22 head_scale=0.125"},
      {"gemma2", "",
       "context=8192 score_scale=0.0625 softcap=50 head_width=256 window=4096 windows=SLS "
       "sublayer_norms=both activation=gelu_tanh tie_head=true logit_softcap=30 embedding_scale=0"},
      {"gemma2", R"("attn_logit_softcapping": null, "final_logit_softcapping": null)",
       "context=8192 score_scale=0.0625 head_width=256 window=4096 windows=SLS sublayer_norms=both "
       "activation=gelu_tanh tie_head=true embedding_scale=0"},
      {"gemma3_text", R"("num_hidden_layers": 8)",
       "context=131072 score_scale=0.0625 qk_norm=rms qk_norm_epsilon=0.25 rotary_base=1e+06 head_width=256 "
       "window=4096 windows=SSSSSLSS window_rotary_base=10000 sublayer_norms=both activation=gelu_tanh "
       "tie_head=true embedding_scale=0"},
      {"gemma3_text",
       R"("num_hidden_layers": 8, "rope_scaling": {"rope_type": "linear", "factor": 8}, "rope_theta": 300,
          "rope_local_base_freq": 7)",
       "context=131072 score_scale=0.0625 qk_norm=rms qk_norm_epsilon=0.25 rotary_base=300 rotary_factor=8 "
       "head_width=256 window=4096 windows=SSSSSLSS window_rotary_base=7 sublayer_norms=both "
       "activation=gelu_tanh tie_head=true embedding_scale=0"},
      {"gemma3_text",
       R"("num_hidden_layers": 8, "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8,
          "rope_theta": 300}, "sliding_attention": {"rope_type": "default", "rope_theta": 7}})",
       "context=131072 score_scale=0.0625 qk_norm=rms qk_norm_epsilon=0.25 rotary_base=300 rotary_factor=8 "
       "head_width=256 window=4096 windows=SSSSSLSS window_rotary_base=7 sublayer_norms=both "
       "activation=gelu_tanh tie_head=true embedding_scale=0"},
      {"gemma3_text", R"("rope_parameters": {}, "sliding_window_pattern": 1)",
       "context=131072 score_scale=0.0625 qk_norm=rms qk_norm_epsilon=0.25 rotary_base=1e+06 head_width=256 "
       "sublayer_norms=both activation=gelu_tanh tie_head=true embedding_scale=0"},
      {"gemma3_text", R"("sliding_window_pattern": 4, "final_logit_softcapping": 30)",
       "context=131072 score_scale=0.0625 qk_norm=rms qk_norm_epsilon=0.25 rotary_base=1e+06 head_width=256 "
       "window=4096 window_rotary_base=10000 sublayer_norms=both activation=gelu_tanh tie_head=true "
       "logit_softcap=30 embedding_scale=0"},
      {"gemma3_text",
       R"("layer_types": ["sliding_attention", "full_attention", "full_attention"],
          "query_pre_attn_scalar": 168, "attn_logit_softcapping": null, "cache_implementation": "hybrid",
          "rope_scaling": null, "sliding_window": 512)",
       "context=131072 score_scale=0.0771517 qk_norm=rms qk_norm_epsilon=0.25 rotary_base=1e+06 "
       "head_width=256 window=512 windows=SLL window_rotary_base=10000 sublayer_norms=both "
       "activation=gelu_tanh tie_head=true embedding_scale=0"},
      {"nanochat", "",
       "qk_norm=plain qk_norm_epsilon=0.25 rotary_reversed=true norm_gain=false activation=relu_squared "
       "gated=false logit_softcap=15 embedding_norm=true"},
      {"nanochat",
       R"("final_logit_softcapping": null, "attention_bias": true, "hidden_act": "gelu",
          "rope_scaling": {"rope_type": "linear", "factor": 8})",
       "qk_norm=plain qk_norm_epsilon=0.25 rotary_factor=8 rotary_reversed=true attention_bias=true "
       "norm_gain=false activation=gelu gated=false embedding_norm=true"},
      {"bloom", "", "context=2048 positions=alibi embedding_norm=true"},
      {"bloom",
       R"("hidden_size": null, "n_embed": 24, "n_layer": null, "num_hidden_layers": 3, "n_head": null,
          "num_attention_heads": 4, "seq_length": 77, "layer_norm_epsilon": 0.5, "hidden_dropout": 0.25,
          "attention_dropout": 0.5, "tie_word_embeddings": false, "n_inner": null, "offset_alibi": 100)",
       "context=77 attention_dropout=0.5 positions=alibi epsilon=0.5 tie_head=false embedding_norm=true "
       "residual_dropout=0.25"},
      {"diffllama", "",
       "attention=differential heads=2 groups=1 head_norm_gain=false head_norm_epsilon=0.25 head_width=12"},
      {"diffllama",
       R"("num_key_value_heads": null, "head_dim": 4, "attention_bias": true,
          "rope_scaling": {"rope_type": "linear", "factor": 8}, "lambda_std_dev": 0.2)",
       "attention=differential heads=2 head_norm_gain=false head_norm_epsilon=0.25 rotary_factor=8 "
       "head_width=8 attention_bias=true"},
      {"bert", "",
       "context=512 attention_dropout=0.1 epsilon=1e-12 sublayer_norms=sum activation=gelu head_bias=true "
       "head_transform=true token_types=2 embedding_norm=true embedding_dropout=0.1 residual_dropout=0.1 "
       "bidirectional=true"},
      {"bert",
       R"("max_position_embeddings": 77, "hidden_act": "relu", "layer_norm_eps": 0.5,
          "hidden_dropout_prob": 0.25, "attention_probs_dropout_prob": 0.5, "type_vocab_size": 3,
          "pooler_type": "first_token_transform", "output_past": true)",
       "context=77 attention_dropout=0.5 epsilon=0.5 sublayer_norms=sum activation=relu head_bias=true "
       "head_transform=true token_types=3 embedding_norm=true embedding_dropout=0.25 residual_dropout=0.25 "
       "bidirectional=true"},
      {"modernbert", "",
       "context=8192 rotary_base=160000 rotary_layout=half_split attention_bias=false positions=rotary "
       "window=128 windows=LSS window_rotary_base=10000 norm_bias=false first_norm=false activation=gelu "
       "gated=true feed_forward_bias=false head_bias=true head_transform=true embedding_norm=true "
       "bidirectional=true"},
      {"modernbert",
       R"("attention_bias": true, "norm_bias": true, "global_attn_every_n_layers": 2, "local_attention": 8,
          "global_rope_theta": 300, "local_rope_theta": 7, "embedding_dropout": 0.25, "mlp_dropout": 0.5)",
       "context=8192 rotary_base=300 rotary_layout=half_split positions=rotary window=8 windows=LSL "
       "window_rotary_base=7 first_norm=false activation=gelu gated=true feed_forward_bias=false "
       "head_bias=true head_transform=true embedding_norm=true embedding_dropout=0.25 "
       "feed_forward_dropout=0.5 bidirectional=true"},
      {"modernbert", R"("global_attn_every_n_layers": 1)",
       "context=8192 rotary_base=160000 rotary_layout=half_split attention_bias=false positions=rotary "
       "norm_bias=false first_norm=false activation=gelu gated=true feed_forward_bias=false head_bias=true "
       "head_transform=true embedding_norm=true bidirectional=true"},
      {"modernbert",
       R"("layer_types": ["sliding_attention", "full_attention", "full_attention"],
          "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 300},
          "sliding_attention": {"rope_type": "default", "rope_theta": 7}})",
       "context=8192 rotary_base=300 rotary_layout=half_split rotary_factor=8 attention_bias=false "
       "positions=rotary window=128 windows=SLL window_rotary_base=7 norm_bias=false first_norm=false "
       "activation=gelu gated=true feed_forward_bias=false head_bias=true head_transform=true "
       "embedding_norm=true bidirectional=true"},
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

TEST_CASE("options of a family's files that are not implemented are refused by name") {
  check_refusals(
      {{"qwen2_moe", "", "model_type qwen2_moe has experts of a kind that is not implemented"},
       {"gemma3", "",
        "model_type gemma3 reads images too, which is not implemented; try its language model alone, as "
        "transformers writes it with model.model.language_model.save_pretrained(folder)"},
       {"roberta", "",
        "model_type must be one of gpt2, llama, mistral, mixtral, phi3, qwen2, qwen3, qwen3_moe, smollm3, "
        "olmo2, olmo3, olmoe, granite, gemma2, gemma3_text, nanochat, bloom, diffllama, qwen3_next, "
        "qwen3_5_text, olmo_hybrid, minicpm3, deepseek_v2, deepseek_v3, deepseek_v32, glm_moe_dsa, gpt_oss, "
        "kimi_linear, bert, modernbert; got roberta"},
       {"mixtral", R"("num_experts_per_tok": 2)", "num_local_experts is missing"},
       {"phi3", R"("partial_rotary_factor": 0.5)",
        "partial_rotary_factor must rotate an even number of a head's 6 components; got 0.5"},
       {"phi3", R"("rope_parameters": {"partial_rotary_factor": 1.5})",
        "partial_rotary_factor must rotate an even number of a head's 6 components; got 1.5"},
       {"phi3", R"("rope_scaling": {"type": "default"}, "rope_parameters": {"rope_theta": 300})",
        "rope_scaling and rope_parameters are both present"},
       {"smollm3", "", "no_rope_layers is missing"},
       {"smollm3", R"("no_rope_layers": [1, 0])", "no_rope_layers must have an entry for each layer"},
       {"smollm3", R"("no_rope_layers": [1, 0, true])",
        "no_rope_layers must be a list of integers from 0 to 2147483647; got [1,0,true]"},
       {"smollm3",
        R"("no_rope_layers": [1, 0, 1], "layer_types": ["sliding_attention", "full_attention",
           "full_attention"], "sliding_window": 5)",
        "layer_types has sliding_attention, but there is no sliding_window"},
       {"qwen2", R"("layer_types": ["full_attention"])", "layer_types must have an entry for each layer"},
       {"qwen3", R"("layer_types": ["sliding_attention", "full_attention", "full_attention"])",
        "layer_types has sliding_attention, but there is no sliding_window"},
       {"granite", R"("logits_scaling": 0)", "logits_scaling must be a positive number; got 0"},
       {"diffllama", R"("num_key_value_heads": 1)", "num_key_value_heads must be even, as heads are pairs"},
       {"gpt_oss", R"("swiglu_limit": 0)", "swiglu_limit must be a positive number; got 0"},
       {"gpt_oss", R"("rope_parameters": null)",
        "rope_parameters is missing, which means YaRN to transformers"}});
  check_refusals(
      {{"mixtral", R"("num_local_experts": 8, "num_experts_per_tok": 2, "router_jitter_noise": 0.1)",
        "router_jitter_noise = 0.1"},
       {"qwen3_moe", R"("num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [1])",
        "mlp_only_layers = [1]"},
       {"qwen3_moe", R"("num_experts": 8, "num_experts_per_tok": 2, "decoder_sparse_step": 2)",
        "decoder_sparse_step = 2"},
       {"olmoe", R"("num_experts": 8, "num_experts_per_tok": 2, "clip_qkv": 8)", "clip_qkv = 8"},
       {"phi3", R"("rope_scaling": {"type": "longrope", "long_factor": [1, 2]})",
        "rope_scaling.type = \"longrope\""},
       {"phi3", R"("rope_parameters": {"rope_type": "yarn", "factor": 2})",
        "rope_parameters.rope_type = \"yarn\""},
       {"phi3", R"("attention_bias": true)", "attention_bias = true"},
       {"llama", R"("rope_interleaved": true)", "rope_interleaved = true"},
       {"qwen2", R"("use_mrope": true)", "use_mrope = true"},
       {"qwen3_moe", R"("num_experts": 8, "num_experts_per_tok": 2, "use_sliding_window": true)",
        "use_sliding_window = true"},
       {"olmo2", R"("sliding_window": 5)", "sliding_window = 5"},
       {"qwen3", R"("layer_types": ["full_attention", "linear_attention", "full_attention"])",
        "layer_types = linear_attention"},
       {"olmo3", R"("rope_parameters": {"sliding_attention": {"rope_type": "yarn", "factor": 8}})",
        "rope_parameters.sliding_attention.rope_type = \"yarn\""},
       {"olmo3", R"("rope_parameters": {"full_attention": {"rope_type": "longrope", "factor": 8}})",
        "rope_parameters.full_attention.rope_type = longrope"},
       {"olmo3", R"("rope_scaling": {"rope_type": "yarn", "factor": 8, "truncate": false})",
        "truncate = false"},
       {"granite", R"("rope_scaling": {"rope_type": "dynamic", "factor": 2})",
        "rope_scaling.rope_type = dynamic"},
       {"gemma3_text", R"("use_bidirectional_attention": true)", "use_bidirectional_attention = true"},
       {"gemma3_text", R"("attn_logit_softcapping": 50)", "attn_logit_softcapping = 50"},
       {"gemma3_text", R"("rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 8}})",
        "rope_parameters.sliding_attention.rope_type = \"linear\""},
       {"gemma3_text", R"("rope_parameters": {"full_attention": {"rope_type": "dynamic"}})",
        "rope_parameters.full_attention.rope_type = dynamic"},
       {"nanochat", R"("rope_scaling": {"rope_type": "yarn", "factor": 8})", "attention_factor = 1.20794"},
       {"bloom", R"("apply_residual_connection_post_layernorm": true)",
        "apply_residual_connection_post_layernorm = true"},
       {"bloom", R"("slow_but_exact": true)", "slow_but_exact = true"},
       {"diffllama", R"("attention_dropout": 0.25)", "attention_dropout = 0.25"},
       {"bert", R"("position_embedding_type": "relative_key")", "position_embedding_type = \"relative_key\""},
       {"bert", R"("is_decoder": true)", "is_decoder = true"},
       {"bert", R"("tie_word_embeddings": false)", "tie_word_embeddings = false"},
       {"modernbert", R"("classifier_activation": "silu")", "classifier_activation = \"silu\""},
       {"modernbert", R"("mlp_bias": true)", "mlp_bias = true"},
       {"modernbert", R"("rope_scaling": {"factor": 8})", "rope_scaling = {\"factor\":8}"},
       {"modernbert", R"("decoder_bias": false)", "decoder_bias = false"},
       {"gpt_oss", R"("hidden_act": "gelu")", "hidden_act = \"gelu\""},
       {"gpt_oss", R"("experts_per_token": 3)", "experts_per_token = 3"},
       {"gpt_oss", R"("layer_types": ["chunked_attention"])", "layer_types = chunked_attention"}},
      kNotImplemented);
  check_refusals(
      {{"mistral", R"("attention_bias": true)", "attention_bias"},
       {"olmo3", R"("rope_parameters": {"rope_type": "default"})", "rope_parameters.rope_type"},
       {"granite", R"("sliding_window": 5)", "sliding_window"},
       {"gemma2", R"("rope_local_base_freq": 7)", "rope_local_base_freq"},
       {"gemma3_text", R"("rope_parameters": {"rope_type": "default"})", "rope_parameters.rope_type"},
       {"nanochat", R"("sliding_window": 5)", "sliding_window"},
       {"bloom", R"("rope_theta": 1e4)", "rope_theta"},
       {"diffllama", R"("mlp_bias": true)", "mlp_bias"},
       {"bert", R"("rotary_value": true)", "rotary_value"},
       {"gpt_oss", R"("shared_expert_intermediate_size": 4)", "shared_expert_intermediate_size"}},
      kUnknown);
}

TEST_CASE("a file without windows has the width of a mask, which transformers makes all the same") {
  for (const char* type : {"gemma2", "gemma3_text", "gpt_oss"}) {
    const char* const full = R"("layer_types": ["full_attention", "full_attention", "full_attention"])";
    const DecoderOnlyConfig config = hugging_face_config(file_of(type, full).dump());
    CHECK(parse_json(hugging_face_json(config)).at("sliding_window") >= config.context);
  }
}

TEST_CASE("people read the families' titles") {
  CHECK(family_titles() ==
        "GPT-2, Llama, Mistral, Mixtral, Phi 3, Qwen 2, Qwen 3, Qwen 3 MoE, SmolLM3, OLMo 2, OLMo 3, OLMoE, "
        "Granite, Gemma 2, Gemma 3 (text), NanoChat, BLOOM, DiffLlama, Qwen 3 Next, Qwen 3.5 (text), OLMo "
        "Hybrid, MiniCPM3, DeepSeek V2, DeepSeek V3, DeepSeek V3.2, GLM 5, gpt-oss, Kimi Linear, BERT or "
        "ModernBERT");
}
