#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/json.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <functional>
#include <limits>

using namespace tapeformer;

namespace {

/// No field as it stands in a fresh configuration.
DecoderOnlyConfig unusual_config() {
  DecoderOnlyConfig config;
  config.vocabulary = 11;
  config.context = 9;
  config.layers = 3;
  config.width = 12;
  config.attention.kind = "gqa";
  config.attention.heads = 6;
  config.attention.groups = 2;
  config.attention.key_width = 8;
  config.attention.bias = false;
  config.attention.dropout = 0.125;
  config.norm = NormKind::rms;
  config.epsilon = 1e-6;
  config.norm_bias = false;
  config.positions = PositionKind::rotary;
  config.attention.rotations.base = 500;
  config.attention.rotations.layout = RotaryLayout::half_split;
  config.attention.rotations.width = 6;
  config.attention.rotations.max_positions = 99;
  config.attention.rotations.factor = 2;
  config.attention.rotations.original_context = 32;
  config.attention.rotations.low_frequency = 1.5;
  config.attention.rotations.high_frequency = 3.5;
  config.feed_forward = 19;
  config.activation = Unary::silu;
  config.gated = true;
  config.feed_forward_bias = false;
  config.tie_head = false;
  config.head_bias = true;
  config.embedding_dropout = 0.25;
  config.residual_dropout = 0.375;
  config.prefix = true;
  return config;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& json) {
  return message_of<CheckpointError>([&] { DecoderOnlyConfig::from_json(json); });
}

std::string refused(const std::function<void(DecoderOnlyConfig&)>& change) {
  DecoderOnlyConfig config = unusual_config();
  change(config);
  Generator random(1);
  return message_of<Error>([&] { DecoderOnly(config, random); });
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("nn/transformer/decoder_only_config") {
  TEST_CASE("every field survives the way through JSON") {
    const DecoderOnlyConfig config = unusual_config();
    const DecoderOnlyConfig read = DecoderOnlyConfig::from_json(config.to_json());
    CHECK(read.to_json() == config.to_json());
    CHECK(read.vocabulary == 11);
    CHECK(read.context == 9);
    CHECK(read.layers == 3);
    CHECK(read.width == 12);
    CHECK(read.attention.kind == "gqa");
    CHECK(read.attention.heads == 6);
    CHECK(read.attention.groups == 2);
    CHECK(read.attention.key_width == 8);
    CHECK_FALSE(read.attention.bias);
    CHECK(read.attention.dropout == 0.125);
    CHECK(read.norm == NormKind::rms);
    CHECK(read.epsilon == 1e-6);
    CHECK_FALSE(read.norm_bias);
    CHECK(read.positions == PositionKind::rotary);
    CHECK(read.attention.rotations.base == 500);
    CHECK(read.attention.rotations.layout == RotaryLayout::half_split);
    CHECK(read.attention.rotations.width == 6);
    CHECK(read.attention.rotations.max_positions == 99);
    CHECK(read.attention.rotations.factor == 2);
    CHECK(read.attention.rotations.original_context == 32);
    CHECK(read.attention.rotations.low_frequency == 1.5);
    CHECK(read.attention.rotations.high_frequency == 3.5);
    CHECK(read.feed_forward == 19);
    CHECK(read.activation == Unary::silu);
    CHECK(read.gated);
    CHECK_FALSE(read.feed_forward_bias);
    CHECK_FALSE(read.tie_head);
    CHECK(read.head_bias);
    CHECK(read.embedding_dropout == 0.25);
    CHECK(read.residual_dropout == 0.375);
    CHECK(read.prefix);

    DecoderOnlyConfig latent;
    latent.vocabulary = 5;
    latent.attention.kind = "mla";
    latent.attention.latent_width = 24, latent.attention.query_latent_width = 14,
    latent.attention.rotary_width = 4;
    const DecoderOnlyConfig back = DecoderOnlyConfig::from_json(latent.to_json());
    CHECK(back.attention.kind == "mla");
    CHECK(back.attention.latent_width == 24);
    CHECK(back.attention.query_latent_width == 14);
    CHECK(back.attention.rotary_width == 4);
    CHECK(back.norm == NormKind::layer);
    CHECK(back.positions == PositionKind::learned);
    CHECK(back.activation == Unary::gelu_tanh);
    CHECK(parse_json(latent.to_json()).at("model") == "decoder_only");
  }

  TEST_CASE("fields reach the attention layer") {
    const AttentionConfig attention = unusual_config().attention_config();
    CHECK(attention.kind == "gqa");
    CHECK(attention.width == 12);
    CHECK(attention.heads == 6);
    CHECK(attention.groups == 2);
    CHECK(attention.key_width == 8);
    CHECK(attention.value_width == 8);
    CHECK(attention.dropout == 0.125);
    CHECK_FALSE(attention.bias);
    CHECK(attention.rotary);
    CHECK(attention.rotations.base == 500);
    CHECK_FALSE(attention.cross);
    DecoderOnlyConfig latent;
    latent.attention.latent_width = 24, latent.attention.query_latent_width = 14,
    latent.attention.rotary_width = 4;
    CHECK(latent.attention_config().latent_width == 24);
    CHECK(latent.attention_config().query_latent_width == 14);
    CHECK(latent.attention_config().rotary_width == 4);
    CHECK_FALSE(latent.attention_config().rotary);
  }

  TEST_CASE("the feed-forward width is four times the width, or when gated two thirds of that, rounded up") {
    DecoderOnlyConfig config;
    config.width = 768;
    CHECK(config.hidden_width() == 3072);
    config.gated = true;
    CHECK(config.hidden_width() == 2048);
    config.width = 100;  // 266.7
    CHECK(config.hidden_width() == 288);
    config.feed_forward = 7;
    CHECK(config.hidden_width() == 7);
  }

  TEST_CASE("damaged, incomplete and impossible configurations are refused with what is wrong") {
    const std::string json = unusual_config().to_json();
    CHECK(contains(refusal("{\"model\": "), "the model's configuration is damaged: "));
    CHECK(contains(refusal(""), "damaged"));
    CHECK(contains(refusal("[]"), "damaged"));
    CHECK(contains(refusal("{}"), "model"));
    CHECK(contains(refusal(replaced(json, "\"head_width\": 8,", "")), "head_width"));
    CHECK(contains(refusal(replaced(json, "\"rotary_factor\": 2.0,", "")), "rotary_factor"));
    CHECK(contains(refusal(replaced(json, "\"norm\": \"rms\"", "\"norm\": 1")),
                   "not usable: norm must be a string; got 1"));
    for (const std::string bad : {"\"ten\"", "1.9", "3.0", "1e30", "-1", "true", "null", "[3]", "2147483648",
                                  "1000000000000", "18446744073709551615", "18446744073709551616"}) {
      INFO(bad);
      CHECK(
          contains(refusal(replaced(json, "\"layers\": 3", "\"layers\": " + bad)),
                   "the model's configuration is not usable: layers must be an integer from 0 to 2147483647; "
                   "got "));
    }
    CHECK(contains(refusal(replaced(json, "\"layers\": 3", "\"layers\": 1.9")), "got 1.9"));
    for (const std::string bad : {"true", "null", "\"2\""}) {
      CHECK(contains(refusal(replaced(json, "\"rotary_factor\": 2.0", "\"rotary_factor\": " + bad)),
                     "rotary_factor must be a number; got " + bad));
    }
    CHECK(refusal(replaced(json, "\"rotary_factor\": 2.0", "\"rotary_factor\": 2")) == "nothing was thrown");
    for (const std::string bad : {"1", "0.0", "null", "\"true\""}) {
      CHECK(contains(refusal(replaced(json, "\"gated\": true", "\"gated\": " + bad)),
                     "gated must be true or false; got " + bad));
    }
    CHECK(contains(refusal(replaced(json, "decoder_only", "encoder_decoder")),
                   "model must be decoder_only; got \"encoder_decoder\""));
    CHECK(refusal(replaced(json, "silu", "softsign")) ==
          "the model's configuration is not usable: [feed_forward] the activation must be relu, gelu, "
          "gelu_tanh "
          "or silu; got softsign");
    CHECK(contains(refusal(replaced(json, "\"rotary\"", "\"relative\"")), "got relative"));
    CHECK(contains(refusal(replaced(json, "\"rms\"", "\"batch\"")), "layer or rms; got batch"));
    CHECK(contains(refusal(replaced(json, "\"gqa\"", "\"linear\"")), "got linear"));
    CHECK(contains(refusal(replaced(json, "half_split", "split")),
                   "rotary_layout must be interleaved or half_split; got split"));
    CHECK(contains(refusal(replaced(json, "\"layers\": 3", "\"layers\": 0")), "layers=0"));
  }

  TEST_CASE("fields that do not fit are refused with what they are") {
    CHECK(refused([](auto& c) { c.vocabulary = 0; }) ==
          "[decoder_only] sizes must be positive; got vocabulary=0, context=9, layers=3, width=12, heads=6");
    CHECK(contains(refused([](auto& c) { c.context = 0; }), "context=0"));
    CHECK(contains(refused([](auto& c) { c.layers = -1; }), "layers=-1"));
    CHECK(contains(refused([](auto& c) { c.width = 0; }), "width=0"));
    CHECK(contains(refused([](auto& c) { c.attention.heads = 0; }), "heads=0"));
    CHECK(refused([](auto& c) { c.attention.kind = "additive"; }) ==
          "[decoder_only] attention must be one of mha, gqa, mqa, mla; got additive");
    CHECK(refused([](auto& c) { c.attention.key_width = 0, c.width = 13; }) ==
          "[attention] width must be divisible by heads; got attention=gqa, width=13, heads=6; try a width "
          "that "
          "is a multiple of the heads");
    CHECK(refused([](auto& c) { c.attention.packed = false; }) ==
          "[decoder_only] the model decides its attention's packed; got packed=false; try packed=true");
    CHECK(refused([](auto& c) { c.attention.width = 12; }) ==
          "[decoder_only] the model decides its attention's width; got width=12; try width=0");
    CHECK(contains(refused([](auto& c) { c.attention.key_width = -2; }), "key_width=-2"));
    CHECK(contains(refused([](auto& c) { c.attention.groups = 4; }), "heads=6, groups=4"));
    CHECK(contains(refused([](auto& c) { c.attention.groups = -1; }), "groups=-1"));
    CHECK(contains(refused([](auto& c) { c.attention.kind = "mha"; }), "groups is for gqa"));
    CHECK(contains(refused([](auto& c) { c.attention.latent_width = 4; }), "is for mla"));
    CHECK(contains(refused([](auto& c) { c.attention.key_width = 5, c.attention.rotations.width = 0; }),
                   "components=5"));
    CHECK(refused([](auto& c) { c.feed_forward = -1; }) ==
          "[decoder_only] feed_forward must not be negative; got -1");
    for (const double epsilon : {0.0, -1e-5, std::nan(""), std::numeric_limits<double>::infinity()})
      CHECK(contains(refused([&](auto& c) { c.epsilon = epsilon; }), "[decoder_only] epsilon must be"));
    for (const double dropout : {-0.1, 1.0, std::nan("")}) {
      CHECK(contains(refused([&](auto& c) { c.embedding_dropout = dropout; }),
                     "embedding_dropout must be in [0, 1)"));
      CHECK(contains(refused([&](auto& c) { c.residual_dropout = dropout; }),
                     "residual_dropout must be in [0, 1)"));
      CHECK(contains(refused([&](auto& c) { c.attention.dropout = dropout; }),
                     "attention_dropout must be in [0, 1)"));
    }
    CHECK(refused([](auto&) {}) == "nothing was thrown");
  }
}
