#include <tapeformer/nn/formats/hugging_face_json.h>
#include <tapeformer/tests/nn/formats/hugging_face_case.h>

#include <cmath>

using namespace tapeformer;

TEST_SUITE("nn/formats/hugging_face_json") {
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
    CHECK(with_tokens({0, {2}}).at("bos_token_id") == 0);
    CHECK(with_tokens({0, {2}}).at("eos_token_id") == 2);
    CHECK(with_tokens({{}, {2}}).at("bos_token_id").is_null());
    CHECK(with_tokens({0, {2, 3}}).at("eos_token_id").dump() == "[2,3]");
    const auto last = static_cast<std::int32_t>(config.vocabulary - 1);
    CHECK(with_tokens({last, {}}).at("bos_token_id") == last);
    CHECK(with_tokens({last, {}}).at("eos_token_id").is_null());
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
    llama.attention.kind = "mla";
    CHECK(refused(llama) ==
          "[export] transformers has no such model; Llama differs least; got attention=mla, "
          "positions=learned; try attention=mha, positions=rotary");
    llama.attention.kind = "mha";
    llama.positions = PositionKind::rotary;
    CHECK_NOTHROW(hugging_face_json(llama));
    llama.attention.rotations.width = 16;
    llama.attention.heads = 3, llama.attention.key_width = 32;
    CHECK(refused(llama) ==
          "[export] transformers has no such model; Llama differs least; got width=128, "
          "rotary_components=16; try width=129, rotary_components=0");
    llama.attention.rotations.width = 32;
    llama.attention.heads = 4;
    CHECK_NOTHROW(hugging_face_json(llama));
    llama.attention.qk_norm = QkNorm::rms;
    llama.embedding_norm = llama.feed_forward_bias = true;
    llama.logit_softcap = 15, llama.value_embeddings = ValueEmbeddings::ends;
    llama.short_convolution = 4;
    CHECK(refused(llama) ==
          "[export] transformers has no such model; Llama differs least; got qk_norm=rms, logit_softcap=15, "
          "embedding_norm=true, value_embeddings=ends, short_convolution=4; try qk_norm=none, "
          "logit_softcap=0, embedding_norm=false, value_embeddings=none, short_convolution=0");
    DecoderOnlyConfig gemma =
        hugging_face_config(with(tapeformer::llama(), "model_type", "gemma3_text").dump());
    gemma.attention.rotations.factor = 2;
    CHECK_NOTHROW(hugging_face_json(gemma));
    for (const double n : {1.0, 7.0, 168.0, 256.0, 12345.0}) {  // transformers takes whole numbers alone
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

  TEST_CASE("whatever an option changes is exported, or refused") {
    DecoderOnlyConfig gpt2_like, llama_like, gemma_like;
    gpt2_like.vocabulary = llama_like.vocabulary = 60;
    gpt2_like.width = llama_like.width = 24;
    gpt2_like.feed_forward = llama_like.feed_forward = 64;
    llama_like.norm = NormKind::rms, llama_like.positions = PositionKind::rotary;
    llama_like.gated = true, llama_like.activation = Unary::silu;
    llama_like.attention.kind = "gqa", llama_like.attention.groups = 2, llama_like.attention.key_width = 6;
    llama_like.attention.rotations.factor = 2;
    gemma_like = llama_like;
    gemma_like.sublayer_norms = SublayerNorms::both, gemma_like.attention.qk_norm = QkNorm::rms;
    gemma_like.attention.qk_norm_epsilon = gemma_like.epsilon;
    gemma_like.embedding_scale = 0, gemma_like.attention.score_scale = 0.5;
    gemma_like.feed_forward_bias = false;
    gemma_like.window = 8, gemma_like.windows = "SL", gemma_like.window_rotary_base = 100;
    gpt2_like.attention.output_bias = llama_like.attention.output_bias = true;
    // Zeros in the file's weights stand for biases that a gpt2 does not have, and the order of rows for the
    // layout of rotations; a llama has no bias in its norms and no dropout but attention's.
    const std::string by_weights = " attention_bias norm_bias feed_forward_bias tie_head rotary_layout ",
                      of_gpt2 = " attention_output_bias ", of_llama = " embedding_dropout residual_dropout ",
                      of_training = " zero_init feed_forward_dropout ";
    for (const DecoderOnlyConfig& start : {gpt2_like, llama_like, gemma_like}) {
      const bool is_llama = start.norm == NormKind::rms;
      const std::string exported = hugging_face_json(start);
      Index found = 0;
      for (std::size_t chosen = 0; chosen < fields_of(start).size(); ++chosen) {
        DecoderOnlyConfig config = start;
        ConfigField field = fields_of(config)[chosen];
        const std::string name = field.name;
        CAPTURE(name);
        if (!change(field)) continue;  // a field without a value, of a kind that the model does not have
        const std::string within = " " + name + " ";
        if (by_weights.find(within) != std::string::npos) continue;
        if (of_training.find(within) != std::string::npos) continue;  // the trained model is the same
        if (is_llama && of_llama.find(within) != std::string::npos) continue;
        if (!is_llama && of_gpt2.find(within) != std::string::npos) continue;
        // Of an attention or positions that the model does not have.
        if (!is_llama && name.find("rotary_") == 0) continue;
        if (name == "qk_norm_epsilon" || name == "full_attention" || name.find("bias_") == 0) continue;
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
