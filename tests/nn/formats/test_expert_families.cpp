#include <tapeformer/tests/nn/formats/family_case.h>

#include <vector>

using namespace tapeformer;

TEST_CASE("gpt-oss is read as what it is, and written as what was read") {
  const Json plain = {{"rope_type", "default"}, {"rope_theta", 300}};
  const auto gpt_oss = [](const Json& rotations, const Json& more) {
    Json json = {{"num_local_experts", 6}, {"num_experts_per_tok", 2}, {"head_dim", nullptr}};
    json["rope_parameters"] = rotations;
    json.update(more);
    return json;
  };
  const DecoderOnlyConfig usual = hugging_face_config(file_of("llama", Json::object()).dump());
  for (const Reading& reading : std::vector<Reading>{
           {"gpt_oss",
            gpt_oss({{"rope_type", "yarn"},
                     {"factor", 32},
                     {"beta_fast", 32},
                     {"beta_slow", 1},
                     {"truncate", false},
                     {"original_max_position_embeddings", 4096}},
                    {{"experts_per_token", 2}, {"initial_context_length", 4096}}),
            "context=131072 sinks=true rotary_base=150000 rotary_factor=32 rotary_original_context=4096 "
            "rotary_high_frequency=32 rotary_yarn=true rotary_whole_pairs=false "
            "rotary_attention_factor=1.34657 head_width=64 attention_bias=true window=128 windows=SLS "
            "swiglu_limit=7 feed_forward_bias=true experts=6 balance_loss=0"},
           {"gpt_oss",
            gpt_oss(plain, {{"head_dim", 6},
                            {"swiglu_limit", 0.5},
                            {"swiglu_alpha", 2},
                            {"sliding_window", 5},
                            {"attention_bias", false},
                            {"output_router_logits", true},
                            {"router_aux_loss_coef", 0.25},
                            {"layer_types", {"full_attention", "full_attention", "full_attention"}}}),
            "context=131072 sinks=true rotary_base=300 swiglu_limit=0.5 swiglu_alpha=2 "
            "feed_forward_bias=true experts=6 balance_loss=0.5"},
       })
    check_reading(reading, usual);
}

TEST_CASE("options of gpt-oss that are not implemented are refused by name") {
  const Json rotations = {{"rope_type", "default"}};
  for (const auto& [more, message] : std::vector<std::pair<Json, std::string>>{
           {{{"hidden_act", "gelu"}}, std::string("hidden_act = \"gelu\"") + kNotImplemented},
           {{{"swiglu_limit", 0}}, "swiglu_limit must be a positive number; got 0"},
           {{{"experts_per_token", 3}}, std::string("experts_per_token = 3") + kNotImplemented},
           {{{"rope_parameters", nullptr}}, "rope_parameters is missing, which means YaRN to transformers"},
           {{{"layer_types", {"chunked_attention"}}},
            std::string("layer_types = chunked_attention") + kNotImplemented},
           {{{"shared_expert_intermediate_size", 4}},
            std::string("shared_expert_intermediate_size") + kUnknown}}) {
    Json json = {{"num_local_experts", 6}, {"num_experts_per_tok", 2}, {"rope_parameters", rotations}};
    json.update(more);
    CHECK(refusal(file_of("gpt_oss", json)) == message);
  }
}
