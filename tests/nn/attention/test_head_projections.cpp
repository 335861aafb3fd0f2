#include <tapeformer/tests/nn/attention/multi_head_case.h>

using namespace tapeformer;

TEST_CASE("packed or not, one seed gives the same initial values") {
  AttentionConfig config = layer_config("mha");
  Generator a(test_seed(7)), b(test_seed(7));
  MultiHeadAttention packed(config, a);
  config.packed = false;
  MultiHeadAttention apart(config, b);
  const std::map<std::string, Tensor> p = parameters_of(apart);
  for (const auto& [name, value] : parameters_of(packed)) {
    TensorList parts;
    for (const std::string& part : golden_parts(name)) parts.push_back(p.at(part));
    CHECK(same_bits(value, concat(parts, 0)));
  }
}

TEST_CASE("another memory, or keys and values of different inputs, take their rows of a shared matrix") {
  const Tensor x = random_values({2, 5, 6}, 3), memory = random_values({2, 7, 6}, 4);
  for (const char* const kind : {"mqa", "gqa"}) {
    const MultiHeadAttention self = random_module<MultiHeadAttention>(layer_config(kind)),
                             cross = random_module<MultiHeadAttention>(
                                 layer_config(kind, [](auto&c) { c.cross = true; }));
    CHECK_BELOW(relative_error(self(x, x.clone()), self(x, x)), 1e-13);
    CHECK_BELOW(relative_error(cross(x, memory, memory.clone(), {}), cross(x, memory)), 1e-13);
  }
}

TEST_CASE("each part starts Xavier uniform on its own, with zero biases") {
  Generator random(test_seed(1));
  for (const char* const kind : {"mha", "gqa", "mqa"}) {
    AttentionConfig config(kind, 8);
    config.width = 64;
    MultiHeadAttention layer(config, random);
    const auto parts = layer.row_parts().at("query_key_value.weight");
    for (const auto& [name, x] : parameters_of(layer)) {
      if (name.find("bias") != std::string::npos) CHECK(absolute_error(x, Tensor::zeros(x.shape())) == 0);
      if (name != "query_key_value.weight") continue;
      Index from = 0;
      for (const Index rows : parts) {
        check_xavier_uniform(slice(x, 0, from, rows));
        from += rows;
      }
    }
  }
}

TEST_CASE("biases are optional, for the inputs and for the output") {
  const auto names = [](bool bias, bool output_bias) {
    const AttentionConfig config =
        layer_config("mha", [&](auto& c) { c.packed = false, c.bias = bias, c.output_bias = output_bias; });
    MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
    std::string text;
    for (const auto& [name, parameter] : layer.named_parameters()) text += name + " ";
    return text;
  };
  CHECK(names(true, false) ==
        "query.weight query.bias key.weight key.bias value.weight value.bias output.weight ");
  CHECK(names(false, true) == "query.weight key.weight value.weight output.weight output.bias ");
}

TEST_CASE("the parts of packed projections are listed by name") {
  using Parts = std::map<std::string, std::vector<Index>>;
  const auto parts = [](const char* kind, const ChooseOptions& choose) {
    return random_module<MultiHeadAttention>(layer_config(kind, choose)).row_parts();
  };
  CHECK(parts("mha", {}) == Parts{{"query_key_value.weight", {24, 24, 20}}});
  CHECK(parts("gqa", {}) == Parts{{"query_key_value.weight", {24, 12, 10}}});
  CHECK(parts("gqa", [](auto& c) { c.cross = true; }) == Parts{{"key_value.weight", {12, 10}}});
  CHECK(parts("mha", [](auto& c) { c.packed = false; }).empty());
  CHECK(parts("gqa", [](auto& c) { c.shared_keys = true; }).empty());
}
