#include <tapeformer/tests/nn/formats/hugging_face_case.h>

using namespace tapeformer;

TEST_SUITE("nn/formats/hugging_face_config") {
  TEST_CASE("a gpt2 with nothing but its sizes is as transformers' defaults say") {
    const DecoderOnlyConfig config = hugging_face_config(gpt2().dump());
    DecoderOnlyConfig expected;
    expected.vocabulary = 50257, expected.context = 1024, expected.width = 768;
    expected.layers = expected.attention.heads = 12;
    expected.feed_forward = 3072;
    expected.embedding_dropout = expected.residual_dropout = expected.attention.dropout = 0.1;
    CHECK(config.to_json() == expected.to_json());
  }

  TEST_CASE("a llama with nothing but its sizes is as transformers' defaults say") {
    const DecoderOnlyConfig config = hugging_face_config(llama().dump());
    DecoderOnlyConfig expected;
    expected.vocabulary = 128256, expected.context = 2048, expected.width = 2048, expected.layers = 16;
    expected.attention.heads = 32, expected.attention.groups = 8, expected.attention.key_width = 64;
    expected.attention.kind = "gqa";
    expected.feed_forward = 8192, expected.gated = true, expected.activation = Unary::silu;
    expected.norm = NormKind::rms, expected.epsilon = 1e-6;
    expected.positions = PositionKind::rotary, expected.attention.rotations.layout = RotaryLayout::half_split;
    expected.attention.bias = expected.feed_forward_bias = expected.tie_head = false;
    CHECK(config.to_json() == expected.to_json());
  }

  TEST_CASE("every field of a gpt2 is used") {
    Json json = gpt2();
    json.update({{"n_positions", 11},
                 {"n_inner", 19},
                 {"activation_function", "relu"},
                 {"layer_norm_epsilon", 0.5},
                 {"embd_pdrop", 0.25},
                 {"resid_pdrop", 0},
                 {"attn_pdrop", 0.5},
                 {"tie_word_embeddings", false}});
    const DecoderOnlyConfig config = hugging_face_config(json.dump());
    CHECK(config.context == 11);
    CHECK(config.feed_forward == 19);
    CHECK(config.activation == Unary::relu);
    CHECK(config.epsilon == 0.5);
    CHECK(config.embedding_dropout == 0.25);
    CHECK(config.residual_dropout == 0);
    CHECK(config.attention.dropout == 0.5);
    CHECK_FALSE(config.tie_head);
  }

  TEST_CASE("every field of a llama is used") {
    Json json = llama();
    json.update({{"max_position_embeddings", 77},
                 {"num_key_value_heads", 1},
                 {"head_dim", 6},
                 {"hidden_act", "gelu"},
                 {"rms_norm_eps", 0.5},
                 {"rope_theta", 500000},
                 {"attention_bias", true},
                 {"attention_dropout", 0.25},
                 {"mlp_bias", true},
                 {"tie_word_embeddings", true}});
    const DecoderOnlyConfig config = hugging_face_config(json.dump());
    CHECK(config.context == 77);
    CHECK(config.attention.kind == "mqa");
    CHECK(config.attention.key_width == 6);
    CHECK(config.activation == Unary::gelu);
    CHECK(config.epsilon == 0.5);
    CHECK(config.attention.rotations.base == 500000);
    CHECK(config.attention.bias);
    CHECK(config.attention.dropout == 0.25);
    CHECK(config.feed_forward_bias);
    CHECK(config.tie_head);
    CHECK(hugging_face_config(with(llama(), "num_key_value_heads", 32).dump()).attention.kind == "mha");
    CHECK(hugging_face_config(with(llama(), "num_key_value_heads", nullptr).dump()).attention.kind == "mha");
  }

  TEST_CASE("activations go by transformers' names") {
    const auto activation = [](const char* name) {
      return hugging_face_config(with(gpt2(), "activation_function", name).dump()).activation;
    };
    for (const char* const name : {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh"}) {
      CHECK(activation(name) == Unary::gelu_tanh);
    }
    for (const char* const name : {"gelu", "gelu_python"}) CHECK(activation(name) == Unary::gelu);
    for (const char* const name : {"silu", "swish"}) CHECK(activation(name) == Unary::silu);
    CHECK(activation("relu") == Unary::relu);
    CHECK(activation("relu2") == Unary::relu_squared);
    CHECK(refusal(with(gpt2(), "activation_function", "quick_gelu")) ==
          std::string("activation_function = quick_gelu") + kNotImplemented);
    CHECK(refusal(with(llama(), "hidden_act", "gelu_10")) ==
          std::string("hidden_act = gelu_10") + kNotImplemented);
  }

  TEST_CASE("rotary scaling is read from the old field and from the new one") {
    const auto rotations = [](const char* name, const Json& value) {
      return hugging_face_config(with(with(llama(), "rope_theta", 300), name, value).dump())
          .attention.rotations;
    };
    for (const char* const type_name : {"type", "rope_type"}) {
      const RotaryConfig linear = rotations("rope_scaling", {{type_name, "linear"}, {"factor", 2.5}});
      CHECK(linear.base == 300);
      CHECK(linear.factor == 2.5);
      CHECK(linear.original_context == 0);
      CHECK(linear.layout == RotaryLayout::half_split);
    }
    Json parameters{
        {"rope_type", "llama3"},      {"rope_theta", 500},     {"factor", 8},
        {"low_freq_factor", 1.5},     {"high_freq_factor", 5}, {"original_max_position_embeddings", 64},
        {"attention_factor", nullptr}};
    const RotaryConfig llama3 = rotations("rope_parameters", parameters);
    CHECK(llama3.base == 500);
    CHECK(llama3.factor == 8);
    CHECK(llama3.original_context == 64);
    CHECK(llama3.low_frequency == 1.5);
    CHECK(llama3.high_frequency == 5);
    parameters.erase("original_max_position_embeddings");
    CHECK(rotations("rope_parameters", parameters).original_context == 2048);
    const RotaryConfig plain = rotations("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7.0}});
    CHECK(plain.base == 7);
    CHECK(plain.factor == 1);
    CHECK(rotations("rope_parameters", Json::object()).base == 300);
  }

  TEST_CASE("rotary scaling that is not implemented, or makes no sense, is refused by name") {
    const auto scaling = [](const Json& value) { return refusal(with(llama(), "rope_scaling", value)); };
    for (const char* const type : {"dynamic", "longrope", "proportional", "su"}) {
      CHECK(scaling({{"rope_type", type}, {"factor", 2.0}}) ==
            std::string("rope_scaling.rope_type = ") + type + kNotImplemented);
    }
    CHECK(scaling({{"type", "dynamic"}}) == std::string("rope_scaling.type = dynamic") + kNotImplemented);
    CHECK(scaling({{"type", "yarn"}}) == "rope_scaling.factor is missing");
    CHECK(scaling({{"type", "yarn"}, {"factor", 4}, {"truncate", false}}) ==
          std::string("rope_scaling.truncate = false") + kNotImplemented);
    CHECK(scaling({{"type", "yarn"}, {"factor", 4}, {"beta_fast", 1}}) ==
          "rope_scaling.beta_slow must be below beta_fast");
    CHECK(scaling({{"rope_type", "linear"}}) == "rope_scaling.factor is missing");
    CHECK(scaling({{"rope_type", "linear"}, {"factor", -1}}) ==
          "rope_scaling.factor must be a positive number; got -1");
    CHECK(
        scaling({{"rope_type", "llama3"}, {"factor", 2}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}) ==
        "rope_scaling.low_freq_factor must be below high_freq_factor");
    CHECK(scaling({{"rope_type", "linear"}, {"factor", 2}, {"mscale", 1}}) ==
          std::string("rope_scaling.mscale") + kUnknown);
    CHECK(scaling({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}) ==
          std::string("rope_scaling.partial_rotary_factor = 0.5") + kNotImplemented);
    CHECK(scaling({{"full_attention", Json::object()}}) ==
          std::string("rope_scaling.full_attention") + kUnknown);
    CHECK(scaling("linear") == "rope_scaling must be an object; got \"linear\"");
    CHECK(refusal(with(with(llama(), "rope_scaling", Json::object()), "rope_parameters", Json::object())) ==
          "rope_scaling and rope_parameters are both there");
  }

  TEST_CASE("fields that change the arithmetic and are not implemented are refused by name") {
    const std::vector<std::pair<const char*, Json>> of_gpt2{{"scale_attn_weights", false},
                                                            {"scale_attn_by_inverse_layer_idx", true},
                                                            {"add_cross_attention", true},
                                                            {"is_encoder_decoder", true},
                                                            {"pruned_heads", {{"0", {1}}}},
                                                            {"quantization_config", {{"bits", 4}}},
                                                            {"auto_map", {{"AutoModel", "own.Model"}}}};
    for (const auto& [name, value] : of_gpt2) {
      CHECK(refusal(with(gpt2(), name, value)) == name + (" = " + value.dump()) + kNotImplemented);
    }
    const std::vector<std::pair<const char*, Json>> of_llama{
        {"sliding_window", 4096}, {"use_sliding_window", true}, {"partial_rotary_factor", 0.5}};
    for (const auto& [name, value] : of_llama) {
      CHECK(refusal(with(llama(), name, value)) == name + (" = " + value.dump()) + kNotImplemented);
    }
  }

  TEST_CASE("the harmless values of these fields, and fields that say nothing about the arithmetic, pass") {
    Json json = gpt2();
    json.update({{"scale_attn_weights", true},
                 {"scale_attn_by_inverse_layer_idx", false},
                 {"reorder_and_upcast_attn", true},
                 {"add_cross_attention", false},
                 {"pruned_heads", Json::object()},
                 {"n_ctx", 1024},
                 {"architectures", {"GPT2LMHeadModel"}},
                 {"task_specific_params", {{"text-generation", {{"do_sample", true}, {"max_length", 50}}}}},
                 {"torch_dtype", "float16"},
                 {"_name_or_path", "gpt2"},
                 {"transformers_version", "4.30.0"},
                 {"something_new", nullptr}});
    CHECK(refusal(json) == "nothing was thrown");
    CHECK(refusal(with(with(llama(), "pretraining_tp", 2), "partial_rotary_factor", 1)) ==
          "nothing was thrown");
  }

  TEST_CASE("unknown fields, misspelt ones and those of the other type are refused by name") {
    CHECK(refusal(with(llama(), "rope_thetta", 500000.0)) == std::string("rope_thetta") + kUnknown);
    CHECK(refusal(with(llama(), "n_inner", 3)) == std::string("n_inner") + kUnknown);
    CHECK(refusal(with(gpt2(), "hidden_size", 3)) == std::string("hidden_size") + kUnknown);
    CHECK(refusal(with(llama(), "embedding_multiplier", 12)) ==
          std::string("embedding_multiplier") + kUnknown);
  }

  TEST_CASE("missing, damaged and impossible fields are refused by name") {
    for (const char* const name : {"vocab_size", "n_embd", "n_layer", "n_head", "model_type"}) {
      Json json = gpt2();
      json.erase(name);
      CHECK(refusal(json) == std::string(name) + " is missing");
    }
    CHECK(refusal(with(gpt2(), "model_type", "bert")) ==
          "model_type must be one of gpt2, llama, mistral, qwen2, qwen3, olmo2, gemma2, "
          "gemma3_text; got bert");
    CHECK(refusal(with(gpt2(), "n_embd", 0)) == "n_embd must be an integer from 1 to 2147483647; got 0");
    CHECK(refusal(with(gpt2(), "attn_pdrop", 1)) == "attn_pdrop must be in [0, 1); got 1");
    CHECK(refusal(with(gpt2(), "n_head", 7)).find("width must be divisible by heads") != std::string::npos);
    CHECK(refusal(with(llama(), "num_key_value_heads", 3)).find("groups") != std::string::npos);
    CHECK(refusal(with(llama(), "head_dim", 5)).find("even") != std::string::npos);
    CHECK(refusal(Json::array()) == " must be an object; got []");
    CHECK(message_of<CheckpointError>([] {
            hugging_face_config("{");
          }).find("the configuration is not JSON") == 0);
    CHECK(message_of<CheckpointError>([] { hugging_face_config("{\"n_head\": 1, \"n_head\": 2}"); }) ==
          "the configuration has \"n_head\" twice");
  }
}
