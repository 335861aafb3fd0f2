#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/text/json.h>
#include <tapeformer/nn/formats/hugging_face_config.h>
#include <tapeformer/tests/reference/config_case.h>

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

Json gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 50257}, {"n_embd", 768}, {"n_layer", 12}, {"n_head", 12}};
}

Json llama() {
  return {{"model_type", "llama"},     {"vocab_size", 128256},    {"hidden_size", 2048},
          {"intermediate_size", 8192}, {"num_hidden_layers", 16}, {"num_attention_heads", 32},
          {"num_key_value_heads", 8}};
}

Json with(Json json, const char* name, const Json& value) {
  json[name] = value;
  return json;
}

std::string refusal(const Json& json) {
  return message_of<CheckpointError>([&] { hugging_face_config(json.dump()); });
}

constexpr const char* kNotImplemented = " changes the arithmetic and is not implemented";
constexpr const char* kUnknown = " is unknown here and may change the arithmetic; if it does not, remove it";

}  // namespace

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
    for (const char* const type : {"dynamic", "yarn", "longrope", "proportional", "su"}) {
      CHECK(scaling({{"rope_type", type}, {"factor", 2.0}}) ==
            std::string("rope_scaling.rope_type = ") + type + kNotImplemented);
    }
    CHECK(scaling({{"type", "yarn"}}) == std::string("rope_scaling.type = yarn") + kNotImplemented);
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
    CHECK(refusal(with(gpt2(), "model_type", "bert")) == "model_type must be gpt2 or llama; got bert");
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

  TEST_CASE("a written configuration is read as the same model") {
    Json biased = llama();
    biased.update({{"attention_bias", true},
                   {"mlp_bias", true},
                   {"attention_dropout", 0.125},
                   {"hidden_act", "gelu_new"},
                   {"tie_word_embeddings", true},
                   {"rms_norm_eps", 1.0 / 3},
                   {"head_dim", 6},
                   {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.5}}}});
    const Json scaled = with(with(llama(), "num_key_value_heads", 1), "rope_parameters",
                             {{"rope_type", "llama3"},
                              {"rope_theta", 500.5},
                              {"factor", 8},
                              {"low_freq_factor", 1.5},
                              {"high_freq_factor", 5},
                              {"original_max_position_embeddings", 64}});
    const Json wide = with(with(gpt2(), "n_inner", 19), "tie_word_embeddings", false);
    for (const Json& json : {gpt2(), llama(), biased, scaled, wide}) {
      const DecoderOnlyConfig config = hugging_face_config(json.dump());
      CHECK(hugging_face_config(hugging_face_json(config)).to_json() == config.to_json());
    }
    const DecoderOnlyConfig config = hugging_face_config(gpt2().dump());
    CHECK(parse_json(hugging_face_json(config))["dtype"] == "float32");
    CHECK(parse_json(hugging_face_json(config, DType::f64))["torch_dtype"] == "float64");
    for (const char* const id : {"bos_token_id", "eos_token_id"}) {  // whose defaults may not be tokens
      CHECK(parse_json(hugging_face_json(config)).at(id).is_null());
    }
    const auto with_tokens = [&](const ControlTokens& tokens) {
      return parse_json(hugging_face_json(config, DType::f32, tokens));
    };
    CHECK(with_tokens({0, 2}).at("bos_token_id") == 0);
    CHECK(with_tokens({0, 2}).at("eos_token_id") == 2);
    CHECK(with_tokens({{}, 2}).at("bos_token_id").is_null());
    const auto last = static_cast<std::int32_t>(config.vocabulary - 1);
    CHECK(with_tokens({last, {}}).at("bos_token_id") == last);
    CHECK(with_tokens({last, {}}).at("eos_token_id").is_null());
    const std::string most = std::to_string(config.vocabulary);
    CHECK(message_of<CheckpointError>([&] {
            with_tokens({last + 1, {}});
          }) == "bos_token_id must be within the vocabulary of " + most + "; got " + most);
    CHECK(message_of<CheckpointError>([&] {
            with_tokens({{}, -1});
          }) == "eos_token_id must be within the vocabulary of " + most + "; got -1");
  }

  TEST_CASE("models that transformers' types cannot express are refused, every field by name") {
    DecoderOnlyConfig gpt;
    gpt.vocabulary = 5;
    gpt.attention.kind = "mqa";
    gpt.prefix = gpt.head_bias = gpt.gated = true;
    gpt.positions = PositionKind::sinusoidal;
    gpt.attention.key_width = 6;
    CHECK(message_of<CheckpointError>([&] { hugging_face_json(gpt); }) ==
          "transformers' gpt2, which has layer norm as this model has, cannot express prefix=true, "
          "head_bias=true, "
          "attention=mqa, head_width=6, positions=sinusoidal, gated=true");
    DecoderOnlyConfig llama;
    llama.vocabulary = 5;
    llama.norm = NormKind::rms;
    llama.attention.kind = "mla";
    CHECK(message_of<CheckpointError>([&] { hugging_face_json(llama); }) ==
          "transformers' llama, which has RMS norm as this model has, cannot express attention=mla, "
          "positions=learned, gated=false");
    llama.attention.kind = "mha";
    llama.positions = PositionKind::rotary;
    llama.gated = true;
    CHECK_NOTHROW(hugging_face_json(llama));
    llama.attention.rotations.width = 16;
    llama.attention.heads = 3, llama.attention.key_width = 32;
    CHECK(message_of<CheckpointError>([&] { hugging_face_json(llama); }) ==
          "transformers' llama, which has RMS norm as this model has, cannot express heads=3 for a width of "
          "128, "
          "rotary_components=16");
    llama.attention.rotations.width = 32;
    llama.attention.heads = 4;
    CHECK_NOTHROW(hugging_face_json(llama));
    llama.attention.qk_norm = llama.embedding_norm = llama.embedding_mixing = llama.fix_norm = true;
    llama.logit_softcap = 15, llama.value_embeddings = ValueEmbeddings::ends;
    llama.short_convolution = 4;
    CHECK(
        message_of<CheckpointError>([&] { hugging_face_json(llama); }) ==
        "transformers' llama, which has RMS norm as this model has, cannot express qk_norm=true, "
        "logit_softcap=15, fix_norm=true, embedding_norm=true, embedding_mixing=true, value_embeddings=ends, "
        "short_convolution=4");
    llama = {};
    llama.vocabulary = 5, llama.norm = NormKind::scale;
    CHECK(message_of<CheckpointError>([&] { hugging_face_json(llama); }) == "transformers has no norm=scale");
  }

  TEST_CASE("whatever an option changes is exported, or refused") {
    DecoderOnlyConfig gpt2_like, llama_like;
    gpt2_like.vocabulary = llama_like.vocabulary = 60;
    gpt2_like.width = llama_like.width = 24;
    gpt2_like.feed_forward = llama_like.feed_forward = 64;
    llama_like.norm = NormKind::rms, llama_like.positions = PositionKind::rotary;
    llama_like.gated = true, llama_like.activation = Unary::silu;
    llama_like.attention.kind = "gqa", llama_like.attention.groups = 2, llama_like.attention.key_width = 6;
    llama_like.attention.rotations.factor = 2;
    // Zeros in the file's weights stand for biases that a gpt2 does not have, and the order of rows for the
    // layout of rotations; a llama has no bias in its norms and no dropout but attention's.
    const std::string by_weights = " attention_bias norm_bias feed_forward_bias tie_head rotary_layout ",
                      of_llama = " embedding_dropout residual_dropout ",
                      of_training = " zero_init feed_forward_dropout stochastic_depth ";
    for (const DecoderOnlyConfig& start : {gpt2_like, llama_like}) {
      const bool is_llama = start.norm == NormKind::rms;
      const std::string exported = hugging_face_json(start);
      Index count = 0, found = 0;
      for_each_field(start, [&](const Field&, const auto&) { ++count; });
      for (Index chosen = 0; chosen < count; ++chosen) {
        DecoderOnlyConfig config = start;
        std::string name;
        Index at = 0;
        for_each_field(config, [&](const Field& field, auto&& member) {
          if (at++ == chosen && change(field, member)) name = field.name;
        });
        CAPTURE(name);
        const std::string within = " " + name + " ";
        if (by_weights.find(within) != std::string::npos) continue;
        if (of_training.find(within) != std::string::npos) continue;  // the trained model is the same
        if (is_llama && of_llama.find(within) != std::string::npos) continue;
        // Of an attention or positions that the model does not have.
        if (!is_llama && name.find("rotary_") == 0) continue;
        if (name.find("latent_width") != std::string::npos || name == "rotary_width") continue;
        if (name == "rotary_max_positions" || name.find("_frequency") != std::string::npos) continue;
        ++found;
        std::string changed = "refused";
        try {
          changed = hugging_face_json(config);
        } catch (const Error&) {
        }
        CHECK(changed != exported);
      }
      CHECK(found > 14);
    }
  }
}
