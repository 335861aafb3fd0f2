#include <tapeformer/nn/formats/family.h>
#include <tapeformer/tests/nn/formats/family_case.h>

using namespace tapeformer;

TEST_CASE("each family is read as what it is, and written as what was read") {
  const auto windows = [](const Json& more) {
    Json json = {{"use_sliding_window", true}, {"sliding_window", 7}, {"max_window_layers", 0}};
    json.update(more);
    return json;
  };
  const Json linear = {{"rope_type", "linear"}, {"factor", 8}};
  Json none = Json::object(), full = linear,
       mixed = {"sliding_attention", "full_attention", "full_attention"};
  full["rope_theta"] = 300;
  const Json both = {{"full_attention", full},
                     {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 7}}}};
  const std::vector<Reading> readings = {
      {"gpt2", none, "context=1024 attention_dropout=0.1 embedding_dropout=0.1 residual_dropout=0.1"},
      {"gpt2",
       {{"n_positions", 11},
        {"n_inner", 19},
        {"activation_function", "relu"},
        {"layer_norm_epsilon", 0.5},
        {"embd_pdrop", 0.25},
        {"resid_pdrop", 0},
        {"attn_pdrop", 0.5},
        {"tie_word_embeddings", false}},
       "context=11 attention_dropout=0.5 epsilon=0.5 activation=relu tie_head=false "
       "embedding_dropout=0.25"},
      {"llama", none,
       "context=2048 attention=gqa groups=2 rotary_layout=half_split head_width=6 attention_bias=false "
       "positions=rotary norm=rms epsilon=0.25 activation=silu gated=true feed_forward_bias=false "
       "tie_head=false"},
      {"llama",
       {{"max_position_embeddings", 77},
        {"num_key_value_heads", 1},
        {"head_dim", 8},
        {"hidden_act", "gelu"},
        {"rope_theta", 500000},
        {"attention_bias", true},
        {"attention_dropout", 0.25},
        {"mlp_bias", true},
        {"tie_word_embeddings", true}},
       "context=77 attention=mqa groups=0 rotary_base=500000 head_width=8 attention_bias=true "
       "attention_dropout=0.25 activation=gelu feed_forward_bias=true tie_head=true"},
      {"llama",
       {{"num_key_value_heads", nullptr}, {"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}},
       "attention=mha groups=0 rotary_factor=2.5"},
      {"llama",
       {{"rope_parameters",
         {{"rope_type", "llama3"},
          {"rope_theta", 500},
          {"factor", 8},
          {"low_freq_factor", 1.5},
          {"high_freq_factor", 5},
          {"original_max_position_embeddings", 64},
          {"attention_factor", nullptr}}}},
       "rotary_base=500 rotary_factor=8 rotary_original_context=64 rotary_low_frequency=1.5 "
       "rotary_high_frequency=5"},
      {"llama",
       {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8}}}},
       "rotary_factor=8 rotary_original_context=2048 rotary_high_frequency=32 rotary_yarn=true "
       "rotary_attention_factor=1.20794"},
      {"mistral", none, "context=131072"},
      {"mistral", {{"sliding_window", 5}, {"head_dim", nullptr}}, "context=131072 window=5"},
      {"phi3",
       {{"partial_rotary_factor", 0.7},
        {"rope_scaling", nullptr},
        {"resid_pdrop", 0.125},
        {"embd_pdrop", 0.5}},
       "context=4096 rotary_components=4 residual_dropout=0.125"},
      {"phi3",
       {{"head_dim", 44},  // 30 / 44 * 44 is rounded to less than 30
        {"sliding_window", 5},
        {"rope_parameters",
         {{"rope_type", "default"}, {"rope_theta", 300}, {"partial_rotary_factor", 0.69}}}},
       "context=4096 rotary_base=300 rotary_components=30 head_width=44 window=5"},
      {"mixtral",
       {{"num_local_experts", 8}, {"num_experts_per_tok", 3}, {"sliding_window", 5}},
       "context=131072 window=5 experts=8 active_experts=3 balance_loss=0"},
      {"mixtral",
       {{"num_local_experts", 8},
        {"num_experts_per_tok", 2},
        {"output_router_logits", true},
        {"router_aux_loss_coef", 0.25}},
       "context=131072 experts=8 balance_loss=0.5"},
      {"qwen3_moe",
       {{"num_experts", 6}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 7}},
       "context=32768 qk_norm=rms qk_norm_epsilon=0.25 experts=6 normalized_router=false "
       "balance_loss=0"},
      {"qwen3_moe",
       {{"num_local_experts", 6}, {"num_experts_per_tok", 2}, {"norm_topk_prob", true}},
       "context=32768 qk_norm=rms qk_norm_epsilon=0.25 experts=6 balance_loss=0"},
      {"olmoe",
       {{"num_experts", 6}, {"num_experts_per_tok", 2}, {"output_router_logits", true}},
       "context=4096 qk_norm=joint qk_norm_epsilon=0.25 experts=6 normalized_router=false balance_loss=0.02"},
      {"qwen2", {{"sliding_window", 7}}, "context=32768 attention_bias=true attention_output_bias=false"},
      {"qwen2",
       {{"use_sliding_window", true}, {"sliding_window", 7}},
       "context=32768 attention_bias=true attention_output_bias=false"},  // after 28 layers without one
      {"qwen2", windows(none), "context=32768 attention_bias=true attention_output_bias=false window=7"},
      {"qwen3", windows({{"max_window_layers", 2}}),
       "context=32768 qk_norm=rms qk_norm_epsilon=0.25 head_width=128 window=7 windows=LLS"},
      {"qwen3", windows({{"layer_types", mixed}, {"attention_bias", true}}),
       "context=32768 qk_norm=rms qk_norm_epsilon=0.25 head_width=128 attention_bias=true window=7 "
       "windows=SLL"},
      {"smollm3",
       {{"no_rope_layers", {1, 0, 1}}, {"no_rope_layer_interval", 2}, {"sliding_window", 7}},
       "context=32768 rotary_base=2e+06 position_pattern=RNR tie_head=true"},
      {"smollm3",
       {{"no_rope_layers", {1, 0, 1}},
        {"use_sliding_window", true},
        {"sliding_window", 7},
        {"attention_bias", true},
        {"mlp_bias", true},
        {"rope_parameters", {{"rope_type", "linear"}, {"rope_theta", 300}, {"factor", 8}}}},
       "context=32768 rotary_base=300 rotary_factor=8 attention_bias=true position_pattern=RNR window=7 "
       "windows=LSL feed_forward_bias=true tie_head=true"},
      {"smollm3",
       {{"no_rope_layers", {1, 1, 1}},
        {"use_sliding_window", true},
        {"sliding_window", 7},
        {"layer_types", mixed},
        {"mlp_bias", true}},
       "context=32768 rotary_base=2e+06 window=7 windows=SLL feed_forward_bias=true tie_head=true"},
      {"olmo2", none, "qk_norm=joint qk_norm_epsilon=0.25 sublayer_norms=output"},
      {"olmo3",
       {{"num_hidden_layers", 5}},
       "qk_norm=joint qk_norm_epsilon=0.25 rotary_base=500000 window=4096 windows=SSSLS "
       "sublayer_norms=output"},
      {"olmo3",
       {{"layer_types", mixed},
        {"rope_theta", 300},
        {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8}}}},
       "qk_norm=joint qk_norm_epsilon=0.25 rotary_base=300 rotary_factor=8 rotary_original_context=2048 "
       "rotary_high_frequency=32 rotary_yarn=true rotary_attention_factor=1.20794 window=4096 windows=SLL "
       "window_rotary_base=300 sublayer_norms=output"},
      {"olmo3",
       {{"layer_types", mixed}, {"rope_parameters", both}, {"sliding_window", 5}},
       "qk_norm=joint qk_norm_epsilon=0.25 rotary_base=300 rotary_factor=8 window=5 windows=SLL "
       "window_rotary_base=7 sublayer_norms=output"},
      {"granite", none, "score_scale=1"},
      {"granite",
       {{"embedding_multiplier", 12},
        {"attention_multiplier", 0.015625},
        {"residual_multiplier", 0.22},
        {"logits_scaling", 8},
        {"mlp_bias", true}},
       "score_scale=0.015625 feed_forward_bias=true embedding_scale=12 residual_scale=0.22 head_scale=0.125"},
      {"gemma2", none,
       "context=8192 score_scale=0.0625 softcap=50 head_width=256 window=4096 windows=SLS "
       "sublayer_norms=both activation=gelu_tanh tie_head=true logit_softcap=30 embedding_scale=0"},
      {"gemma2",
       {{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}},
       "context=8192 score_scale=0.0625 head_width=256 window=4096 windows=SLS sublayer_norms=both "
       "activation=gelu_tanh tie_head=true embedding_scale=0"},
      {"gemma3_text",
       {{"num_hidden_layers", 8}},
       "context=131072 score_scale=0.0625 qk_norm=rms qk_norm_epsilon=0.25 rotary_base=1e+06 "
       "head_width=256 window=4096 windows=SSSSSLSS window_rotary_base=10000 sublayer_norms=both "
       "activation=gelu_tanh tie_head=true embedding_scale=0"},
      {"gemma3_text",
       {{"num_hidden_layers", 8}, {"rope_scaling", linear}, {"rope_theta", 300}, {"rope_local_base_freq", 7}},
       "context=131072 score_scale=0.0625 qk_norm=rms qk_norm_epsilon=0.25 rotary_base=300 rotary_factor=8 "
       "head_width=256 window=4096 windows=SSSSSLSS window_rotary_base=7 sublayer_norms=both "
       "activation=gelu_tanh tie_head=true embedding_scale=0"},
      {"gemma3_text",
       {{"num_hidden_layers", 8}, {"rope_parameters", both}},
       "context=131072 score_scale=0.0625 qk_norm=rms qk_norm_epsilon=0.25 rotary_base=300 rotary_factor=8 "
       "head_width=256 window=4096 windows=SSSSSLSS window_rotary_base=7 sublayer_norms=both "
       "activation=gelu_tanh tie_head=true embedding_scale=0"},
      {"gemma3_text",
       {{"rope_parameters", none}, {"sliding_window_pattern", 1}},
       "context=131072 score_scale=0.0625 qk_norm=rms qk_norm_epsilon=0.25 rotary_base=1e+06 "
       "head_width=256 sublayer_norms=both activation=gelu_tanh tie_head=true embedding_scale=0"},
      {"gemma3_text",
       {{"sliding_window_pattern", 4}, {"final_logit_softcapping", 30}},
       "context=131072 score_scale=0.0625 qk_norm=rms qk_norm_epsilon=0.25 rotary_base=1e+06 "
       "head_width=256 window=4096 window_rotary_base=10000 sublayer_norms=both activation=gelu_tanh "
       "tie_head=true logit_softcap=30 embedding_scale=0"},
      {"gemma3_text",
       {{"layer_types", mixed},
        {"query_pre_attn_scalar", 168},
        {"attn_logit_softcapping", nullptr},
        {"cache_implementation", "hybrid"},
        {"rope_scaling", nullptr},
        {"sliding_window", 512}},
       "context=131072 score_scale=0.0771517 qk_norm=rms qk_norm_epsilon=0.25 rotary_base=1e+06 "
       "head_width=256 window=512 windows=SLL window_rotary_base=10000 sublayer_norms=both "
       "activation=gelu_tanh tie_head=true embedding_scale=0"},
      {"nanochat", none,
       "qk_norm=plain qk_norm_epsilon=0.25 rotary_reversed=true norm_gain=false activation=relu_squared "
       "gated=false logit_softcap=15 embedding_norm=true"},
      {"nanochat",
       {{"final_logit_softcapping", nullptr},
        {"attention_bias", true},
        {"hidden_act", "gelu"},
        {"rope_scaling", linear}},
       "qk_norm=plain qk_norm_epsilon=0.25 rotary_factor=8 rotary_reversed=true attention_bias=true "
       "norm_gain=false activation=gelu gated=false embedding_norm=true"},
      {"bloom", none, "context=2048 positions=alibi embedding_norm=true"},
      {"bloom",
       {{"hidden_size", nullptr},
        {"n_embed", 24},
        {"n_layer", nullptr},
        {"num_hidden_layers", 3},
        {"n_head", nullptr},
        {"num_attention_heads", 4},
        {"seq_length", 77},
        {"layer_norm_epsilon", 0.5},
        {"hidden_dropout", 0.25},
        {"attention_dropout", 0.5},
        {"tie_word_embeddings", false},
        {"n_inner", nullptr},
        {"offset_alibi", 100}},
       "context=77 attention_dropout=0.5 positions=alibi epsilon=0.5 tie_head=false embedding_norm=true "
       "residual_dropout=0.25"},
      {"diffllama", none,
       "attention=differential heads=2 groups=1 head_norm_gain=false head_norm_epsilon=0.25 head_width=12"},
      {"diffllama",
       {{"num_key_value_heads", nullptr},
        {"head_dim", 4},
        {"attention_bias", true},
        {"rope_scaling", linear},
        {"lambda_std_dev", 0.2}},
       "attention=differential heads=2 head_norm_gain=false head_norm_epsilon=0.25 rotary_factor=8 "
       "head_width=8 attention_bias=true"},
  };
  const Reading& llama = readings[2];
  const DecoderOnlyConfig usual = hugging_face_config(file_of(llama.type, llama.more).dump());
  for (const Reading& reading : readings) {
    const bool is_first =
        reading.type == std::string("gpt2") || reading.type == std::string("bloom") || &reading == &llama;
    check_reading(reading, is_first ? DecoderOnlyConfig() : usual);
  }
}

TEST_CASE("options of a family's files that are not implemented are refused by name") {
  struct Refusal {
    const char* type;
    Json more;
    std::string message;
  };
  const Json sliding = {"sliding_attention", "full_attention", "full_attention"};
  const auto is_not_implemented = [](const std::string& what) { return what + kNotImplemented; };
  for (const auto& [type, more, message] : std::vector<Refusal>{
           {"qwen2_moe", {}, "model_type qwen2_moe has experts of a kind that is not implemented"},
           {"gemma3",
            {},
            "model_type gemma3 reads images too, which is not implemented; try its language model alone, as "
            "transformers writes it with model.model.language_model.save_pretrained(folder)"},
           {"roberta",
            {},
            "model_type must be one of gpt2, llama, mistral, mixtral, phi3, qwen2, qwen3, qwen3_moe, "
            "smollm3, "
            "olmo2, olmo3, olmoe, granite, gemma2, gemma3_text, nanochat, bloom, diffllama, qwen3_next, "
            "qwen3_5_text, olmo_hybrid, minicpm3, deepseek_v2, deepseek_v3, deepseek_v32, glm_moe_dsa, "
            "gpt_oss, kimi_linear, bert, modernbert; got roberta"},
           {"mistral", {{"attention_bias", true}}, std::string("attention_bias") + kUnknown},
           {"mixtral",
            {{"num_local_experts", 8}, {"num_experts_per_tok", 2}, {"router_jitter_noise", 0.1}},
            is_not_implemented("router_jitter_noise = 0.1")},
           {"mixtral", {{"num_experts_per_tok", 2}}, "num_local_experts is missing"},
           {"qwen3_moe",
            {{"num_experts", 8}, {"num_experts_per_tok", 2}, {"mlp_only_layers", {1}}},
            is_not_implemented("mlp_only_layers = [1]")},
           {"qwen3_moe",
            {{"num_experts", 8}, {"num_experts_per_tok", 2}, {"decoder_sparse_step", 2}},
            is_not_implemented("decoder_sparse_step = 2")},
           {"olmoe",
            {{"num_experts", 8}, {"num_experts_per_tok", 2}, {"clip_qkv", 8}},
            is_not_implemented("clip_qkv = 8")},
           {"phi3",
            {{"rope_scaling", {{"type", "longrope"}, {"long_factor", {1, 2}}}}},
            is_not_implemented("rope_scaling.type = \"longrope\"")},
           {"phi3",
            {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2}}}},
            is_not_implemented("rope_parameters.rope_type = \"yarn\"")},
           {"phi3", {{"attention_bias", true}}, is_not_implemented("attention_bias = true")},
           {"phi3",
            {{"partial_rotary_factor", 0.5}},
            "partial_rotary_factor must rotate an even number of a head's 6 components; got 0.5"},
           {"phi3",
            {{"rope_parameters", {{"partial_rotary_factor", 1.5}}}},
            "partial_rotary_factor must rotate an even number of a head's 6 components; got 1.5"},
           {"smollm3", Json::object(), "no_rope_layers is missing"},
           {"smollm3", {{"no_rope_layers", {1, 0}}}, "no_rope_layers must have an entry for each layer"},
           {"smollm3",
            {{"no_rope_layers", {1, 0, true}}},
            "no_rope_layers must be a list of integers from 0 to 2147483647; got [1,0,true]"},
           {"smollm3",
            {{"no_rope_layers", {1, 0, 1}}, {"layer_types", sliding}, {"sliding_window", 5}},
            "layer_types has sliding_attention, but there is no sliding_window"},
           {"olmo2", {{"sliding_window", 5}}, is_not_implemented("sliding_window = 5")},
           {"qwen2", {{"layer_types", {"full_attention"}}}, "layer_types must have an entry for each layer"},
           {"qwen3",
            {{"layer_types", {"full_attention", "linear_attention", "full_attention"}}},
            is_not_implemented("layer_types = linear_attention")},
           {"qwen3",
            {{"layer_types", sliding}},
            "layer_types has sliding_attention, but there is no sliding_window"},
           {"olmo3",
            {{"rope_parameters", {{"sliding_attention", {{"rope_type", "yarn"}, {"factor", 8}}}}}},
            is_not_implemented("rope_parameters.sliding_attention.rope_type = \"yarn\"")},
           {"olmo3",
            {{"rope_parameters", {{"full_attention", {{"rope_type", "longrope"}, {"factor", 8}}}}}},
            is_not_implemented("rope_parameters.full_attention.rope_type = longrope")},
           {"olmo3",
            {{"rope_parameters", {{"rope_type", "default"}}}},
            std::string("rope_parameters.rope_type") + kUnknown},
           {"granite", {{"logits_scaling", 0}}, "logits_scaling must be a positive number; got 0"},
           {"granite", {{"sliding_window", 5}}, std::string("sliding_window") + kUnknown},
           {"granite",
            {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}}},
            is_not_implemented("rope_scaling.rope_type = dynamic")},
           {"gemma2", {{"rope_local_base_freq", 7}}, std::string("rope_local_base_freq") + kUnknown},
           {"gemma3_text",
            {{"use_bidirectional_attention", true}},
            is_not_implemented("use_bidirectional_attention = true")},
           {"gemma3_text",
            {{"attn_logit_softcapping", 50}},
            is_not_implemented("attn_logit_softcapping = 50")},
           {"gemma3_text",
            {{"rope_parameters", {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 8}}}}}},
            is_not_implemented("rope_parameters.sliding_attention.rope_type = \"linear\"")},
           {"gemma3_text",
            {{"rope_parameters", {{"full_attention", {{"rope_type", "dynamic"}}}}}},
            is_not_implemented("rope_parameters.full_attention.rope_type = dynamic")},
           {"gemma3_text",
            {{"rope_parameters", {{"rope_type", "default"}}}},
            std::string("rope_parameters.rope_type") + kUnknown},
           {"nanochat", {{"sliding_window", 5}}, std::string("sliding_window") + kUnknown},
           {"nanochat",
            {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8}}}},
            is_not_implemented("attention_factor = 1.20794")},
           {"bloom",
            {{"apply_residual_connection_post_layernorm", true}},
            is_not_implemented("apply_residual_connection_post_layernorm = true")},
           {"bloom", {{"rope_theta", 1e4}}, std::string("rope_theta") + kUnknown},
           {"diffllama",
            {{"num_key_value_heads", 1}},
            "num_key_value_heads must be even, as heads are pairs"},
           {"diffllama", {{"attention_dropout", 0.25}}, is_not_implemented("attention_dropout = 0.25")},
           {"diffllama", {{"mlp_bias", true}}, std::string("mlp_bias") + kUnknown}}) {
    CHECK(refusal(file_of(type, more.is_null() ? Json::object() : more)) == message);
  }
}

TEST_CASE("people read the families' titles") {
  CHECK(family_titles("or") ==
        "GPT-2, Llama, Mistral, Mixtral, Phi 3, Qwen 2, Qwen 3, Qwen 3 MoE, SmolLM3, OLMo 2, OLMo 3, OLMoE, "
        "Granite, Gemma 2, Gemma 3 (text), NanoChat, BLOOM, DiffLlama, Qwen 3 Next, Qwen 3.5 (text), OLMo "
        "Hybrid, MiniCPM3, DeepSeek V2, DeepSeek V3, DeepSeek V3.2, GLM 5, gpt-oss, Kimi Linear, BERT or "
        "ModernBERT");
}
