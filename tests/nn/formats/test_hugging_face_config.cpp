#include <tapeformer/tests/nn/formats/hugging_face_case.h>

#include <cmath>

using namespace tapeformer;

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

TEST_CASE("YaRN's factor of attention is that of its authors unless the file says otherwise") {
  const auto factor = [](const Json& more) {
    Json scaling = {{"rope_type", "yarn"}, {"factor", 8}, {"original_max_position_embeddings", 64}};
    scaling.update(more);
    return hugging_face_config(with(llama(), "rope_scaling", scaling).dump())
        .attention.rotations.attention_factor;
  };
  CHECK(factor(Json::object()) == doctest::Approx(0.1 * std::log(8.0) + 1));
  CHECK(factor({{"attention_factor", 1.5}}) == 1.5);
  CHECK(factor({{"mscale", 2}, {"mscale_all_dim", 1}}) ==
        doctest::Approx((0.2 * std::log(8.0) + 1) / (0.1 * std::log(8.0) + 1)));
  CHECK(factor({{"factor", 1}}) == 1);
}

TEST_CASE("rotary scaling that is not implemented, or makes no sense, is refused by name") {
  const auto scaling = [](const Json& value) { return refusal(with(llama(), "rope_scaling", value)); };
  for (const char* const name : {"type", "rope_type"})
    CHECK(scaling({{name, "dynamic"}}) ==
          std::string("rope_scaling.") + name + " = dynamic" + kNotImplemented);
  CHECK(scaling({{"type", "yarn"}}) == "rope_scaling.factor is missing");
  CHECK(scaling({{"type", "yarn"}, {"factor", 4}, {"beta_fast", 1}}) ==
        "rope_scaling.beta_slow must be below beta_fast");
  CHECK(scaling({{"rope_type", "linear"}, {"factor", -1}}) ==
        "rope_scaling.factor must be a positive number; got -1");
  CHECK(scaling({{"rope_type", "llama3"}, {"factor", 2}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}) ==
        "rope_scaling.low_freq_factor must be below high_freq_factor");
  CHECK(scaling({{"rope_type", "linear"}, {"factor", 2}, {"mscale", 1}}) ==
        std::string("rope_scaling.mscale") + kUnknown);
  CHECK(scaling({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}) ==
        std::string("rope_scaling.partial_rotary_factor = 0.5") + kNotImplemented);
  CHECK(refusal(with(with(llama(), "rope_scaling", Json::object()), "rope_parameters", Json::object())) ==
        "rope_scaling and rope_parameters are both present");
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
  CHECK(refusal(with(gpt2(), "quantization_config", {{"quant_method", "mxfp4"}})) ==
        std::string("quantization_config = mxfp4: ") + kMxfp4Refusal);
}

TEST_CASE("the harmless values of these fields, and fields that say nothing about the arithmetic, pass") {
  Json json = gpt2();
  json.update(parse_json(R"({
    "scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false, "reorder_and_upcast_attn": true,
    "add_cross_attention": false, "pruned_heads": {}, "n_ctx": 1024, "architectures": ["GPT2LMHeadModel"],
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
    "torch_dtype": "float16", "_name_or_path": "gpt2", "transformers_version": "4.30.0", "something_new": null
  })"));
  CHECK(refusal(json) == "nothing was thrown");
  CHECK(refusal(with(with(llama(), "pretraining_tp", 2), "partial_rotary_factor", 1)) ==
        "nothing was thrown");
}

TEST_CASE("missing, damaged and impossible fields are refused by name") {
  for (const char* const name : {"vocab_size", "n_embd", "n_layer", "n_head", "model_type"}) {
    Json json = gpt2();
    json.erase(name);
    CHECK(refusal(json) == std::string(name) + " is missing");
  }
  CHECK(refusal(with(gpt2(), "hidden_size", 3)) == std::string("hidden_size") + kUnknown);
  CHECK(refusal(with(gpt2(), "n_head", 7)).find("width must be divisible by heads") != std::string::npos);
  CHECK(refusal(with(llama(), "num_key_value_heads", 3)).find("groups") != std::string::npos);
  CHECK(refusal(with(llama(), "head_dim", 5)).find("even") != std::string::npos);
  CHECK(refusal(Json::array()) == " must be an object; got []");
  CHECK_THROWS_AS(hugging_face_config("{"), CheckpointError);
}

TEST_CASE("types and control tokens are written") {
  const DecoderOnlyConfig config = hugging_face_config(gpt2().dump());
  CHECK(parse_json(hugging_face_json(config))["dtype"] == "float32");
  CHECK(parse_json(hugging_face_json(config, DType::f64))["torch_dtype"] == "float64");
  for (const char* const id :
       {"bos_token_id", "eos_token_id", "pad_token_id"}) {  // whose defaults may not be tokens
    CHECK(parse_json(hugging_face_json(config)).at(id).is_null());
  }
  const auto with_tokens = [&](const ControlTokens& tokens) {
    return parse_json(hugging_face_json(config, DType::f32, tokens));
  };
  const auto last = static_cast<std::int32_t>(config.vocabulary - 1);
  CHECK(with_tokens({last, {2}}).at("bos_token_id") == last);
  CHECK(with_tokens({0, {2}}).at("eos_token_id") == 2);
  CHECK(with_tokens({{}, {2}}).at("bos_token_id").is_null());
  CHECK(with_tokens({0, {2, 3}}).at("eos_token_id").dump() == "[2,3]");
  const std::string most = std::to_string(config.vocabulary);
  CHECK(message_of<CheckpointError>([&] {
          with_tokens({last + 1, {}});
        }) == "bos_token_id must be within the vocabulary of " + most + "; got " + most);
  CHECK(message_of<CheckpointError>([&] {
          with_tokens({{}, {2, -1}});
        }) == "eos_token_id must be within the vocabulary of " + most + "; got -1");
}

TEST_CASE("models that transformers' types cannot express are refused, every field by name") {
  const auto refused = [](const DecoderOnlyConfig& config) {
    return message_of<CheckpointError>([&] { hugging_face_json(config); });
  };
  DecoderOnlyConfig gpt;
  gpt.vocabulary = 5;
  gpt.attention.kind = "mqa";
  gpt.prefix = gpt.head_bias = true;
  gpt.attention.key_width = 6;
  CHECK(refused(gpt) ==
        "[export] transformers has no such model; GPT-2 differs least; got attention=mqa, head_width=6, "
        "head_bias=true, prefix=true; try attention=mha, head_width=0, head_bias=false, prefix=false");
  DecoderOnlyConfig llama;
  llama.vocabulary = 5;
  llama.norm = NormKind::rms, llama.gated = true, llama.activation = Unary::silu;
  llama.positions = PositionKind::rotary;
  CHECK_NOTHROW(hugging_face_json(llama));
  llama.attention.rotations.width = 16;
  llama.attention.heads = 3, llama.attention.key_width = 32;
  CHECK(refused(llama) ==
        "[export] transformers has no such model; Llama differs least; got width=128, "
        "rotary_components=16; try width=129, rotary_components=0");
  DecoderOnlyConfig gemma =
      hugging_face_config(with(tapeformer::llama(), "model_type", "gemma3_text").dump());
  gemma.attention.rotations.factor = 2;
  CHECK_NOTHROW(hugging_face_json(gemma));
  for (const double n : {1.0, 7.0, 168.0, 256.0, 12345.0}) {  // transformers takes only whole numbers
    gemma.attention.score_scale = 1 / std::sqrt(n);
    CHECK(parse_json(hugging_face_json(gemma)).at("query_pre_attn_scalar").dump() ==
          std::to_string(static_cast<int>(n)));
  }
  for (const double scale : {0.0, 1e-10, 0.3, 2.0}) {
    gemma.attention.score_scale = scale;
    CHECK(refused(gemma).find("; got score_scale=" + value_text(scale) + "; try score_scale=0.0625") !=
          std::string::npos);
  }
  gemma.attention.score_scale = 0.5;
  gemma.window_rotary_base = 0, gemma.logit_softcap = 3, gemma.sublayer_norms = SublayerNorms::both;
  gemma.value_residual = true;
  CHECK(refused(gemma).find("Gemma 2 differs least; got qk_norm=rms, value_residual=true; ") !=
        std::string::npos);  // Gemma 3 would want a base for windows too
}
