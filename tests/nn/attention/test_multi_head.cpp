#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/tests/nn/attention/multi_head_case.h>

#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

AttentionConfig golden_config() {
  AttentionConfig config;
  config.width = 12;
  config.heads = 3;
  return config;
}

/// check(layer) of the layer, with its projections apart and packed.
template <class Check>
void for_both_forms(AttentionConfig config, const Check& check) {
  for (const bool packed : {false, true}) {
    INFO("packed ", packed);
    config.packed = packed;
    auto layer = fresh_module<MultiHeadAttention>(config);
    check(layer);
  }
}

}  // namespace

TEST_CASE("self- and cross-attention under every mask, with biases, widths and layouts, are PyTorch's") {
  const AttentionConfig plain = golden_config();
  AttentionConfig no_bias = plain, wide = plain, sequence_first = plain;
  no_bias.bias = false, sequence_first.sequence_first = true;
  wide.key_width = 5, wide.value_width = 7;
  for (const auto& [name, config, causal] : {std::tuple("attention_self", plain, false),
                                             {"attention_cross", plain, false},
                                             {"attention_no_bias", no_bias, false},
                                             {"attention_cross_wide", wide, false},
                                             {"attention_causal", plain, true},
                                             {"attention_is_causal", plain, true},
                                             {"attention_padded_causal", plain, true},
                                             {"attention_boolean_mask", plain, false},
                                             {"attention_floating_mask", plain, false},
                                             {"attention_self_sequence_first", sequence_first, true}})
    for_both_forms(config, [name = name, causal = causal](MultiHeadAttention& layer) {
      check_attention_against_golden(name, layer, causal);
    });
}

TEST_CASE("three inputs of three widths are PyTorch's in both layouts") {
  for (const bool sequence_first : {false, true}) {
    AttentionConfig config = golden_config();
    config.memory_width = 9, config.value_memory_width = 10;
    config.packed = false, config.sequence_first = sequence_first;
    auto layer = fresh_module<MultiHeadAttention>(config);
    const std::string name = "attention_three_inputs";
    check_layer_against_golden(sequence_first ? name + "_sequence_first" : name, layer,
                               [&](const GoldenInputs& in) {
                                 AttentionContext context;
                                 context.key_mask = in.at("memory_may_attend");
                                 return layer(in.at("x"), in.at("key"), in.at("value"), context);
                               });
  }
}

TEST_CASE("weights, of each head and averaged, and their gradients are PyTorch's") {
  for (const bool averaged : {false, true}) {
    for_both_forms(golden_config(), [&](MultiHeadAttention& layer) {
      check_layer_against_golden(averaged ? "attention_weights_averaged" : "attention_weights_of_heads",
                                 layer, [&](const GoldenInputs& in) {
                                   Tensor weights;
                                   AttentionContext context;
                                   context.key_mask = in.at("memory_may_attend");
                                   context.weights = &weights;
                                   const Tensor y = layer(in.at("x"), in.at("memory"), context);
                                   if (averaged) weights = mean(weights, {1});
                                   return concat({reshape(y, {-1}), reshape(weights, {-1})}, 0);
                                 });
    });
  }
}

TEST_CASE("grouped-query and multi-query attention are PyTorch's") {
  const Golden golden("grouped_latent");
  for (const char* name : {"grouped_self", "multi_query_self", "grouped_plain", "grouped_cross"}) {
    const auto given = golden.options(name);
    AttentionConfig config("gqa", given["heads"].get<Index>());
    config.width = 12, config.groups = given["groups"].get<Index>();
    config.cross = std::string(name) == "grouped_cross";
    config.bias = !config.cross;
    if (config.cross) {
      config.key_width = config.value_width = 4, config.memory_width = 9;
    } else {
      config.key_width = given["key_width"].get<Index>(),
      config.value_width = given["value_width"].get<Index>();
      config.rotary = given["rotary"].get<bool>();
    }
    auto attention = fresh_module<MultiHeadAttention>(config);
    check_attention_against_golden(name, attention, !config.cross, "grouped_latent");
  }
}

TEST_CASE("dropout on the output drops outputs in training, with a counter of its own") {
  MultiHeadAttention attention =
      random_module<MultiHeadAttention>(layer_config("mha", [](auto& c) { c.output_dropout = 0.5; }));
  const Tensor x = random_values({2, 40, 6}, 3);
  const Tensor dropped = attention(x, x);
  attention.eval();
  const Tensor whole = attention(x, x);
  double zeros = 0;
  for (Index i = 0; i < whole.elements(); ++i) {
    zeros += dropped.at(i) == 0;
    if (dropped.at(i) != 0) REQUIRE_BELOW(deviation(dropped.at(i), 2 * whole.at(i)), 1e-12);
  }
  CHECK_BELOW(std::abs(zeros - 240.0), kDeviations * std::sqrt(480 / 4.0));
  std::map<std::string, std::uint64_t> draws;
  for (const auto& [name, counter] : attention.named_counters()) draws[name] = *counter;
  CHECK(draws == std::map<std::string, std::uint64_t>{{"dropout.step", 0}, {"output_dropout.step", 1}});
}

TEST_CASE("gqa has half as many heads of keys by default, or the next divisor, and mqa has one") {
  const auto groups = [](const char* kind, Index heads) {
    AttentionConfig config(kind, heads);
    config.width = 30 * heads;
    return config.resolved().key_heads();
  };
  CHECK(groups("gqa", 8) == 4);
  CHECK(groups("gqa", 9) == 3);
  CHECK(groups("gqa", 7) == 1);
  CHECK(groups("mqa", 8) == 1);
  CHECK(groups("mha", 8) == 8);
}

TEST_CASE("inputs of several widths need separate projections, and shared keys refuse cross-attention") {
  const auto refusal_of = [](const char* kind, const ChooseOptions& choose) {
    return message_of<Error>([&] { layer_config(kind, choose).check(); });
  };
  CHECK(refusal_of("gqa", [](auto& c) { c.memory_width = 5; }) ==
        "[attention] a packed projection needs inputs of one width; got attention=gqa, width=6, "
        "memory_width=5, value_memory_width=5; try cross=true");
  CHECK(refusal_of("mha", [](auto& c) { c.value_memory_width = 7; }) ==
        "[attention] a packed projection needs inputs of one width; got attention=mha, width=6, "
        "memory_width=6, value_memory_width=7; try packed=false");
  CHECK(refusal_of("gqa", [](auto& c) { c.shared_keys = c.cross = true; }) ==
        "[attention] a layer with shared_keys has no values of its own; got attention=gqa, "
        "shared_keys=true, cross=true; try cross=false");
}
