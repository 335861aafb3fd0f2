#include <tapeformer/nn/formats/hugging_face_family.h>
#include <tapeformer/nn/formats/hugging_face_json.h>
#include <tapeformer/tests/nn/formats/hugging_face_case.h>

#include <cmath>

using namespace tapeformer;

TEST_SUITE("nn/formats/hugging_face_family") {
  TEST_CASE("each family is read as what it is, and chosen for what only it has") {
    Json sizes = llama();
    sizes.update({{"hidden_size", 24},
                  {"num_attention_heads", 4},
                  {"num_hidden_layers", 3},
                  {"num_key_value_heads", 2},
                  {"rms_norm_eps", 0.25}});
    const auto read = [&](const char* type, const Json& more = Json::object()) {
      Json json = with(sizes, "model_type", type);
      json.update(more);
      return hugging_face_config(json.dump());
    };
    const auto round_trip = [](const DecoderOnlyConfig& config, const char* type) {
      const std::string json = hugging_face_json(config);
      CHECK(parse_json(json).at("model_type") == type);
      CHECK(hugging_face_config(json).to_json() == config.to_json());
    };
    DecoderOnlyConfig config = read("mistral");
    CHECK(config.window == 0);
    CHECK(config.context == 131072);
    config = read("mistral", {{"sliding_window", 5}, {"head_dim", nullptr}});
    CHECK(config.window == 5);
    CHECK(config.windows.empty());
    CHECK_FALSE(config.attention.bias);
    round_trip(config, "mistral");
    const Json slides = {{"use_sliding_window", true}, {"sliding_window", 7}};
    for (const char* const type : {"qwen2", "qwen3"}) {
      CAPTURE(std::string(type));
      CHECK(read(type, {{"sliding_window", 7}}).window == 0);
      Json more = slides;
      CHECK(read(type, more).window == 0);  // 28 layers without one come first
      more["max_window_layers"] = 0;
      CHECK(read(type, more).window == 7);
      CHECK(read(type, more).windows.empty());
      round_trip(read(type, more), type);
      more["max_window_layers"] = 2;
      CHECK(read(type, more).windows == "LLS");
      round_trip(read(type, more), type);
      more["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
      CHECK(read(type, more).windows == "SLS");
      round_trip(read(type, more), type);
      const auto refused = [&](const Json& changes) {
        Json json = with(sizes, "model_type", type);
        json.update(more);
        json.update(changes);
        return refusal(json);
      };
      CHECK(refused({{"layer_types", {"full_attention"}}}) ==
            "layer_types must have an entry for each layer");
      CHECK(refused({{"layer_types", {"full_attention", "linear_attention", "full_attention"}}}) ==
            std::string("layer_types = linear_attention") + kNotImplemented);
      CHECK(refused({{"use_sliding_window", false}}) ==
            "layer_types has sliding_attention, and there is no sliding_window");
    }
    config = read("qwen2");
    CHECK(config.attention.bias);
    CHECK(config.attention.output_bias == false);
    round_trip(config, "qwen2");
    config = read("qwen3", {{"attention_bias", true}});
    CHECK(config.attention.key_width == 128);
    CHECK(config.attention.qk_norm == QkNorm::rms);
    CHECK(config.attention.qk_norm_epsilon == 0.25);
    round_trip(config, "qwen3");
    config = read("olmo2");
    CHECK(config.attention.qk_norm == QkNorm::joint);
    CHECK(config.sublayer_norms == SublayerNorms::output);
    round_trip(config, "olmo2");
    config = read("gemma2");
    CHECK(config.sublayer_norms == SublayerNorms::both);
    CHECK(config.embedding_scale == 0);
    CHECK(config.attention.key_width == 256);
    CHECK(config.attention.score_scale == 1.0 / 16);
    CHECK(config.attention.softcap == 50);
    CHECK(config.logit_softcap == 30);
    CHECK(config.activation == Unary::gelu_tanh);
    CHECK(config.tie_head);
    CHECK(config.window == 4096);
    CHECK(config.windows == "SLS");
    round_trip(config, "gemma2");
    config = read("gemma2", {{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}});
    CHECK(config.attention.softcap == 0);
    CHECK(config.logit_softcap == 0);
    round_trip(config, "gemma2");
    CHECK(refusal(with(sizes, "model_type", "gpt_oss")) ==
          "model_type gpt_oss has experts, which are not implemented");
    round_trip(read("llama", {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8}}}}), "llama");
    CHECK(refusal(with(with(sizes, "model_type", "mistral"), "attention_bias", true)) ==
          std::string("attention_bias") + kUnknown);
    CHECK(refusal(with(with(sizes, "model_type", "olmo2"), "sliding_window", 5)) ==
          std::string("sliding_window = 5") + kNotImplemented);
  }

  TEST_CASE("Gemma 3's files are read as transformers reads them, older and newer ones") {
    // As the smallest published model has it.
    const Json published = {{"architectures", {"Gemma3ForCausalLM"}},
                            {"attention_bias", false},
                            {"attn_logit_softcapping", nullptr},
                            {"cache_implementation", "hybrid"},
                            {"eos_token_id", {1, 106}},
                            {"final_logit_softcapping", nullptr},
                            {"head_dim", 256},
                            {"hidden_activation", "gelu_pytorch_tanh"},
                            {"hidden_size", 1152},
                            {"intermediate_size", 6912},
                            {"max_position_embeddings", 32768},
                            {"model_type", "gemma3_text"},
                            {"num_attention_heads", 4},
                            {"num_hidden_layers", 26},
                            {"num_key_value_heads", 1},
                            {"query_pre_attn_scalar", 256},
                            {"rms_norm_eps", 1e-6},
                            {"rope_local_base_freq", 10000},
                            {"rope_scaling", nullptr},
                            {"rope_theta", 1000000},
                            {"sliding_window", 512},
                            {"sliding_window_pattern", 6},
                            {"vocab_size", 262144}};
    const auto read = [](const Json& json) {
      const DecoderOnlyConfig config = hugging_face_config(json.dump());
      const std::string written = hugging_face_json(config);
      CHECK(parse_json(written).at("model_type") == "gemma3_text");
      CHECK(hugging_face_config(written).to_json() == config.to_json());
      return config;
    };
    DecoderOnlyConfig config = read(published);
    CHECK(config.window == 512);
    CHECK(config.windows == "SSSSSLSSSSSLSSSSSLSSSSSLSS");
    CHECK(config.window_rotary_base == 1e4);
    CHECK(config.attention.rotations.base == 1e6);
    CHECK(config.attention.qk_norm == QkNorm::rms);
    CHECK(config.attention.qk_norm_epsilon == 1e-6);
    CHECK(config.attention.score_scale == 1.0 / 16);
    CHECK(config.attention.softcap == 0);
    CHECK(config.logit_softcap == 0);
    CHECK(config.embedding_scale == 0);
    CHECK(config.tie_head);
    CHECK(parse_json(hugging_face_json(config)).at("sliding_window_pattern") == 6);
    CHECK(parse_json(hugging_face_json(config)).at("query_pre_attn_scalar").dump() == "256");
    CHECK(parse_json(hugging_face_json(config)).at("rope_local_base_freq") == 10000);
    Json least = with(llama(), "model_type", "gemma3_text");
    least.erase("num_key_value_heads");
    config = read(least);  // the defaults
    CHECK(config.attention.groups == 4);
    CHECK(config.attention.key_width == 256);
    CHECK(config.context == 131072);
    CHECK(config.window == 4096);
    CHECK(config.windows == "SSSSSLSSSSSLSSSS");
    CHECK(config.window_rotary_base == 1e4);
    CHECK(config.attention.rotations.base == 1e6);
    const Json linear = {{"rope_type", "linear"}, {"factor", 8}};
    config =
        read(with(with(with(least, "rope_scaling", linear), "rope_theta", 300), "rope_local_base_freq", 7));
    Json full = linear;
    full["rope_theta"] = 300;
    const Json both = {{"full_attention", full},
                       {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 7}}}};
    CHECK(read(with(least, "rope_parameters", both)).to_json() == config.to_json());
    CHECK(config.attention.rotations.factor == 8);
    CHECK(config.attention_config(4).rotations.base == 7);
    CHECK(config.attention_config(4).rotations.factor == 1);
    CHECK(config.attention_config(5).rotations.base == 300);
    CHECK(config.attention_config(5).rotations.factor == 8);
    CHECK(read(with(least, "rope_parameters", Json::object())).to_json() == read(least).to_json());
    config = read(with(least, "sliding_window_pattern", 1));
    CHECK(config.window == 0);
    CHECK(config.window_rotary_base == 0);
    config = read(with(least, "sliding_window_pattern", 17));
    CHECK(config.window == 4096);
    CHECK(config.windows.empty());
    CHECK(config.window_rotary_base == 1e4);
    const Json own = {"sliding_attention", "full_attention", "full_attention"};
    CHECK(read(with(with(least, "num_hidden_layers", 3), "layer_types", own)).windows == "SLL");
    CHECK(read(with(least, "final_logit_softcapping", 30)).logit_softcap == 30);
  }

  TEST_CASE("what Gemma 3's files may say and is not implemented is refused by name") {
    const Json least = with(llama(), "model_type", "gemma3_text");
    CHECK(refusal(with(least, "use_bidirectional_attention", true)) ==
          std::string("use_bidirectional_attention = true") + kNotImplemented);
    CHECK(refusal(with(least, "attn_logit_softcapping", 50)) ==
          std::string("attn_logit_softcapping = 50") + kNotImplemented);
    const auto parameters = [&](const Json& value) { return refusal(with(least, "rope_parameters", value)); };
    CHECK(parameters({{"sliding_attention", {{"rope_type", "linear"}, {"factor", 8}}}}) ==
          std::string("rope_parameters.sliding_attention.rope_type = \"linear\"") + kNotImplemented);
    CHECK(parameters({{"full_attention", {{"rope_type", "dynamic"}}}}) ==
          std::string("rope_parameters.full_attention.rope_type = dynamic") + kNotImplemented);
    CHECK(parameters({{"rope_type", "default"}}) == std::string("rope_parameters.rope_type") + kUnknown);
    CHECK(refusal(with(with(least, "model_type", "gemma2"), "rope_local_base_freq", 7)) ==
          std::string("rope_local_base_freq") + kUnknown);
    CHECK(refusal({{"model_type", "gemma3"}, {"text_config", least}}) ==
          "model_type gemma3 reads images too, which is not implemented; try its language model alone, as "
          "transformers writes it with model.model.language_model.save_pretrained(folder)");
  }

  TEST_CASE("YaRN's factor of attention is that of its authors unless the file says otherwise") {
    const auto factor = [](const Json& more) {
      Json scaling = {{"rope_type", "yarn"}, {"factor", 8}, {"original_max_position_embeddings", 64}};
      scaling.update(more);
      const RotaryConfig rotations =
          hugging_face_config(with(llama(), "rope_scaling", scaling).dump()).attention.rotations;
      CHECK(rotations.yarn);
      CHECK(rotations.original_context == 64);
      CHECK(rotations.low_frequency == 1);
      CHECK(rotations.high_frequency == 32);
      return rotations.attention_factor;
    };
    CHECK(factor(Json::object()) == doctest::Approx(0.1 * std::log(8.0) + 1));
    CHECK(factor({{"attention_factor", 1.5}}) == 1.5);
    CHECK(factor({{"mscale", 2}, {"mscale_all_dim", 1}}) ==
          doctest::Approx((0.2 * std::log(8.0) + 1) / (0.1 * std::log(8.0) + 1)));
    CHECK(factor({{"factor", 1}}) == 1);
  }

  TEST_CASE("people read the families' titles") {
    CHECK(hugging_face_titles("or") ==
          "GPT-2, Llama, Mistral, Qwen 2, Qwen 3, OLMo 2, Gemma 2 or Gemma 3 (text)");
  }
}
