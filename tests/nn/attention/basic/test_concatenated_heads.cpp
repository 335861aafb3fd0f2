#include <tapeformer/nn/attention/basic/concatenated_heads.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

namespace {

ConcatenatedHeadsConfig config_of(bool causal) {
  ConcatenatedHeadsConfig config;
  config.head.width = 6;
  config.head.key_width = 4;
  config.head.value_width = 5;
  config.head.causal = causal;
  config.head.bias = true;
  config.heads = 3;
  config.output = true;
  return config;
}

/// Multi-head attention with the stacked projections of the heads.
MultiHeadAttention stacked(ConcatenatedHeads& heads, bool packed) {
  AttentionConfig config;
  config.width = 6;
  config.heads = 3;
  config.key_width = 4;
  config.value_width = 5;
  config.packed = packed;
  MultiHeadAttention together = random_module<MultiHeadAttention>(config);
  const std::map<std::string, Tensor> p = parameters_of(heads);
  for (auto& [name, parameter] : together.named_parameters()) {
    TensorList rows;
    for (const std::string& part : golden_parts(name)) {
      if (part.rfind("output", 0) == 0) rows.push_back(p.at(part));
      for (Index h = 0; h < 3 && part.rfind("output", 0) != 0; ++h) {
        rows.push_back(p.at(std::to_string(h) + "." + part));
      }
    }
    parameter.set_value(concat(rows, 0));
  }
  return together;
}

}  // namespace

TEST_CASE("heads side by side are one projection split into heads: outputs, weights and gradients") {
  const Tensor query = random_values({2, 5, 6}, 3), memory = random_values({2, 7, 6}, 4);
  for (const bool packed : {false, true}) {
    for (const bool causal : {false, true}) {
      ConcatenatedHeads heads = random_module<ConcatenatedHeads>(config_of(causal));
      MultiHeadAttention together = stacked(heads, packed);
      for (const bool is_self : {true, false}) {
        Tensor results[2], weights[2], gradients[2];
        const Attention* const layers[] = {&heads, &together};
        for (int i : {0, 1}) {
          AttentionContext context;
          context.causal = causal && i == 1;  // the heads are causal by themselves
          context.key_mask = is_self ? real_tokens({4, 5}, 5) : real_tokens({7, 6}, 7);
          context.weights = &weights[i];
          const Tensor x = query.detach();
          Tape tape;
          tape.watch(x);
          results[i] = (*layers[i])(x, is_self ? x : memory, context);
          gradients[i] = tape.gradients(results[i], {x}, random_values({2, 5, 6}, 9))[0];
        }
        CHECK_BELOW(relative_error(results[0], results[1]), 1e-13);
        CHECK_BELOW(relative_error(weights[0], weights[1]), 1e-13);
        CHECK_BELOW(relative_error(gradients[0], gradients[1]), 1e-13);
      }
    }
  }
}

TEST_CASE("a width that heads do not divide, and a cache, are refused") {
  Generator random(test_seed(1));
  ConcatenatedHeadsConfig config;
  config.head.width = 10;
  config.heads = 3;
  CHECK(message_of<Error>([&] { ConcatenatedHeads(config, random); }) ==
        "[concatenated_heads] width must be divisible by heads; got width=10, heads=3; try a width that is "
        "a multiple of the heads");
  const ConcatenatedHeads heads = random_module<ConcatenatedHeads>(config_of(true));
  const auto cache = make_cache({}, {12, 15});
  AttentionContext context;
  context.cache = cache.get();
  const Tensor x = random_values({1, 2, 6}, 3);
  CHECK(message_of<Error>([&] { heads(x, x, context); }) ==
        "[concatenated_heads] this layer keeps no cache; try MultiHeadAttention");
}
