#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/tests/reference/support.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

/// Grouped heads with rotary positions and a prefix.
DecoderOnlyConfig grouped_config() {
  DecoderOnlyConfig config;
  config.vocabulary = 11;
  config.layers = 3;
  config.width = 12;
  config.attention = {"gqa", 6};
  config.attention.groups = 2;
  config.attention.key_width = 8;
  config.attention.dropout = 0.125;
  config.positions = PositionKind::rotary;
  config.attention.rotations.width = 6;
  config.prefix = true;
  return config;
}

std::string refused(const std::function<void(DecoderOnlyConfig&)>& change) {
  DecoderOnlyConfig config = grouped_config();
  change(config);
  Generator random(test_seed(1));
  return message_of<Error>([&] { DecoderOnly(config, random); });
}

}  // namespace

TEST_CASE("a pattern gives each layer its kind of attention, with the fields of that kind alone") {
  DecoderOnlyConfig config = grouped_config();
  config.attention.kind = "kda", config.attention.own["decay_rank"] = 3, config.full_attention = "gqa";
  config.attention_pattern = "DDF", config.layers = 7;
  config.prefix = false;
  config.check();
  std::string kinds;
  for (Index layer = 0; layer < 7; ++layer) {
    const AttentionConfig attention = config.attention_config(layer);
    const bool is_full = layer % 3 == 2;
    kinds += attention.kind + " ";
    CHECK(attention.groups == (is_full ? 2 : 0));
    CHECK(attention.own.count("decay_rank") == (is_full ? 0 : 1));
    CHECK(attention.rotary == is_full);  // a state knows the order by itself
    CHECK(attention.dropout == (is_full ? 0.125 : 0));
    CHECK(attention.key_width == 8);
  }
  CHECK(kinds == "kda kda gqa kda kda gqa kda ");
  std::string all;
  for_each_attention(config, [&](const AttentionConfig& attention) { all += attention.kind + " "; });
  CHECK(all == kinds);
  const DecoderOnlyConfig read = DecoderOnlyConfig::from_json(config.to_json());
  CHECK(read.attention_pattern == "DDF");
  CHECK(read.full_attention == "gqa");
  CHECK(read.attention.own.at("decay_rank") == 3);
}

TEST_CASE("a pattern leaves the rotary positions of some layers out") {
  DecoderOnlyConfig config = grouped_config();
  config.position_pattern = "RN";
  config.check();
  for (Index layer = 0; layer < 3; ++layer) {
    CHECK(config.rotates(layer) == (layer != 1));
    CHECK(config.attention_config(layer).rotary == (layer != 1));
  }
  CHECK(refused([](auto& c) { c.position_pattern = "RS"; }) ==
        "[decoder_only] position_pattern must be of the letters R and N; got RS");
  CHECK(refused([](auto& c) { c.position_pattern = "RN", c.positions = PositionKind::learned; }) ==
        "[decoder_only] position_pattern=RN needs rotary positions; try positions=rotary");
  CHECK(refused([](auto& c) { c.position_pattern = "RN", c.kv_sharing = 3; }) ==
        "[decoder_only] kv_sharing excludes position_pattern, since layers that share keys rotate them "
        "alike");
}

TEST_CASE("an encoder sees all tokens, and continues no text") {
  const auto encoder = [](const std::function<void(DecoderOnlyConfig&)>& change) {
    return refused([&](DecoderOnlyConfig& c) {
      c.prefix = false, c.bidirectional = true;
      change(c);
    });
  };
  CHECK(encoder([](auto&) {}) == "nothing was thrown");
  CHECK(encoder([](auto& c) { c.prefix = true; }) ==
        "[decoder_only] bidirectional excludes prefix, since all tokens see each other");
  CHECK(encoder([](auto& c) { c.first_norm = false, c.sublayer_norms = SublayerNorms::sum; }) ==
        "[decoder_only] first_norm=false needs norms of the sublayers' inputs; got sublayer_norms=sum; try "
        "sublayer_norms=input");
  CHECK(encoder([](auto& c) {
          c.attention.groups = 0, c.attention.kind = "gla", c.positions = PositionKind::none;
        }).find("[decoder_only] bidirectional attention is for attention=mha, ") == 0);
  DecoderOnlyConfig config;
  config.require_causal();
  config.bidirectional = true;
  CHECK(has(message_of<Error>([&] { config.require_causal(); }), "an encoder cannot continue a text"));
}

TEST_CASE("empty patterns, and options that their kinds lack, are refused") {
  const auto hybrid = [](const std::function<void(DecoderOnlyConfig&)>& change) {
    return refused([&](DecoderOnlyConfig& c) {
      c.attention.groups = 0, c.attention.kind = "deltanet", c.attention_pattern = "DF";
      c.prefix = false;
      change(c);
    });
  };
  CHECK(hybrid([](auto&) {}) == "nothing was thrown");
  CHECK(hybrid([](auto& c) { c.attention_pattern = "DXF"; }) ==
        "[decoder_only] attention_pattern must be of the letters D and F; got DXF");
  CHECK(hybrid([](auto& c) {
          c.full_attention = "additive";
        }).find("[decoder_only] full_attention must be one of mha, ") == 0);
  CHECK(hybrid([](auto& c) {
          c.prefix = true;
        }).find("[decoder_only] a prefix that sees itself in both directions is for attention=mha, ") == 0);
  CHECK(has(hybrid([](auto& c) { c.attention.groups = 2; }), "groups is for gqa"));
  CHECK(hybrid([](auto& c) { c.sublayer_norms = SublayerNorms::mixed, c.attention_pattern = ""; }) ==
        "[decoder_only] sublayer_norms=mixed differ by the letters of attention_pattern; got none; try "
        "attention_pattern=DDDF");
  CHECK(has(hybrid([](auto& c) { c.value_residual = true; }),
            "value_residual is for attention=mha, gqa, mqa; got deltanet"));
}

TEST_CASE("positions are those that the layers have, or are refused") {
  const auto refusal_with = [](const std::string& kind, PositionKind positions, const char* pattern = "") {
    DecoderOnlyConfig config;
    config.vocabulary = 5, config.attention.kind = kind, config.positions = positions;
    config.attention_pattern = pattern;
    return message_of<Error>([&] { config.check(); });
  };
  for (const AttentionKind& kind : attention_kinds()) {
    if (!(kind.can & kCanModelLanguage)) continue;
    CAPTURE(kind.name);
    CHECK(refusal_with(kind.name, PositionKind::none) == "nothing was thrown");
    CHECK(refusal_with(kind.name, PositionKind::learned) == "nothing was thrown");
    for (const PositionKind biased : {PositionKind::alibi, PositionKind::buckets}) {
      const bool has_state = (kind.can & kHasState) != 0, fits = kind.uses("relative_bias");
      CHECK((refusal_with(kind.name, biased) == "nothing was thrown") == fits);
      CHECK((refusal_with(kind.name, biased, "DF") == "nothing was thrown") == (fits || has_state));
    }
  }
  CHECK(refusal_with("kda", PositionKind::alibi) ==
        "[decoder_only] positions=alibi bias scores, which a state does not have; got attention=kda; try "
        "positions=none");
  CHECK(refusal_with("mla", PositionKind::buckets) ==
        "[attention] positions=buckets are for mha, gqa, mqa; got attention=mla; try positions=learned");
}

TEST_CASE("latent attention without positions has no rotary keys") {
  DecoderOnlyConfig config;
  config.vocabulary = 5, config.width = 16, config.layers = 1, config.attention = {"mla", 2};
  const auto has_rotary_keys = [&] {
    Generator random(test_seed(1));
    bool found = false;
    for (auto& [name, parameter] : DecoderOnly(config, random).named_parameters())
      found = found || has(name, "key_rotary");
    return found;
  };
  CHECK(has_rotary_keys());
  config.positions = PositionKind::none;
  CHECK_FALSE(has_rotary_keys());
  config.attention.rotary_width = 4;
  CHECK(message_of<Error>([&] { config.check(); }) ==
        "[attention] rotary_width=4 is for rotary positions; got attention=mla; try rotary_width=0");
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

TEST_CASE("fields that do not fit are refused with their values") {
  CHECK(refused([](auto& c) { c.vocabulary = 0; }) ==
        "[decoder_only] vocabulary must be from 1 to 2147483647; got 0");
  CHECK(refused([](auto& c) { c.attention.kind = "additive"; }) ==
        "[decoder_only] attention must be one of " + kind_names([](const AttentionKind& kind) {
          return kind.can & kCanModelLanguage;
        }) + "; got additive");
  CHECK(refused([](auto& c) { c.attention.packed = false; }) ==
        "[decoder_only] the model decides its attention's packed; got packed=false; try packed=true");
  CHECK(refused([](auto& c) { c.attention.width = 12; }) ==
        "[decoder_only] the model decides its attention's width; got width=12; try width=0");
  CHECK(refused([](auto& c) { c.attention.form = LatentForm::naive; }) ==
        "[decoder_only] the model decides its attention's form; got form=naive; try form=automatic");
  CHECK(has(refused([](auto& c) { c.attention.groups = 4; }), "heads=6, groups=4"));
  CHECK(has(refused([](auto& c) { c.attention.kind = "mha"; }), "groups is for gqa"));
  CHECK(has(refused([](auto& c) { c.attention.key_width = 5, c.attention.rotations.width = 0; }),
            "components=5"));
  CHECK(refused([](auto&) {}) == "nothing was thrown");
}
