#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/attention_rounding.h>
#include <tapeformer/tests/reference/rounding.h>

#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

Op packed_by(const PackedHeads& heads, const AttentionOptions& options) {
  return [=](const std::vector<Tensor>& in) {
    return packed_attention(in[0], heads, with_modifiers(options, in, 1));
  };
}

}  // namespace

TEST_CASE("one query worked by hand: scores ln 3 and 0 give weights 3/4 and 1/4") {
  const Tensor query = values({2, 0}, {1, 1, 1, 2}), key = values({std::log(3.0) / 2, 9, 0, 9}, {1, 2, 1, 2});
  const Tensor value = values({4, 8}, {1, 2, 1, 1});
  AttentionOptions options;
  options.scale = 1;
  Tensor weights;
  for (Tensor* asked : {static_cast<Tensor*>(nullptr), &weights}) {
    options.weights = asked;
    const OpResult got = run_op(attention_by(scaled_dot_product_attention, options), {query, key, value},
                                values({1}, {1, 1, 1, 1}));
    CHECK_BELOW(deviation(got.y.item(), 5), kFewRoundings);
    // dscores = w (v - 5) = (-3/4, 3/4); the other component is 9 times their sum, of nothing but roundings.
    CHECK_BELOW(relative_error(got.gradients[0], values({-0.375 * std::log(3.0), 0}, {1, 1, 1, 2})), 1e-13);
    CHECK_BELOW(relative_error(got.gradients[1], values({-1.5, 0, 1.5, 0}, {1, 2, 1, 2})), 1e-14);
    CHECK_BELOW(relative_error(got.gradients[2], values({0.75, 0.25}, {1, 2, 1, 1})), kFewRoundings);
  }
  CHECK_BELOW(relative_error(weights, values({0.75, 0.25}, {1, 1, 1, 2})), kFewRoundings);
}

TEST_CASE("large scores neither overflow nor lose the small ones") {
  Generator random(test_seed(2));
  AttentionInputs in = random_inputs(1, 40, 200, 1, 1, 4, 3, random);
  AttentionOptions options;
  options.scale = 200;  // scores beyond +-1000, where exp overflows and f32 rounds by 6e-5
  check_attention_paths(in, options, random);
  options.scale = 0;
  options.mask = filled({200}, [](Index s) { return s < 150 ? -600.0 : -500.0; });
  check_attention_paths(in, options, random);
}

TEST_CASE("one tensor may be query, key and value") {
  Generator random(test_seed(8));
  const Tensor x = random_normal({2, 4, 2, 3}, random), seed = random_normal({2, 4, 2, 3}, random);
  const OpResult got =
      run_op([](const auto& in) { return scaled_dot_product_attention(in[0], in[0], in[0]); }, {x}, seed);
  const AttentionOracle parts = attention_oracle({x, x, x}, {}, seed);
  CHECK_BELOW(relative_error(got.gradients[0], parts.gradients[0] + parts.gradients[1] + parts.gradients[2]),
              1e-13);
}

TEST_CASE("parameters accumulate over steps, and only tensors that need a gradient get one") {
  Generator random(test_seed(10));
  const AttentionInputs in = random_inputs(1, 5, 33, 2, 2, 3, 4, random);
  const Tensor seed = random_normal({1, 5, 2, 4}, random);
  const AttentionOracle expected = attention_oracle(in, {}, seed);
  for (int wanted = 1; wanted < 8; ++wanted) {
    CAPTURE(wanted);
    std::vector<Parameter> parameters;
    for (int i = 0; i < 3; ++i) {
      parameters.emplace_back(in.list()[static_cast<std::size_t>(i)].clone());
      parameters.back().set_trainable((wanted >> i & 1) != 0);
    }
    for (int step = 1; step <= 2; ++step) {
      Tape tape;
      tape.backward(scaled_dot_product_attention(parameters[0], parameters[1], parameters[2]), seed);
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(parameters[i].gradient().defined() == parameters[i].trainable());
        if (!parameters[i].trainable()) continue;
        CHECK_BELOW(relative_error(parameters[i].gradient(), expected.gradients[i] * step), 1e-13);
      }
    }
  }
}

TEST_CASE("keys without numbers have equal weights") {
  Generator random(test_seed(11));
  const AttentionInputs in = random_inputs(1, 2, 4, 1, 1, 0, 3, random);
  const Tensor queries = Tensor::zeros({1, 2, 1, 1}, DType::f64),
               keys = Tensor::zeros({1, 4, 1, 1}, DType::f64);
  for (const AttentionFunction path : kAttentionPaths)
    CHECK_BELOW(relative_error(path(in.query, in.key, in.value, {}), path(queries, keys, in.value, {})),
                kFewRoundings);
}

TEST_CASE("both paths give what PyTorch gives, over the grid of its options") {
  const Golden golden("attention");
  const std::vector<std::string> cases = golden.cases();
  CHECK(cases.size() >= 48);
  for (const std::string& name : cases) {
    CAPTURE(name);
    const nlohmann::ordered_json given = golden.options(name);
    AttentionOptions options;
    options.causal = given.value("causal", false);
    if (given.value("top_left", false)) options.alignment = CausalAlignment::top_left;
    options.scale = given.value("scale", 0.0);
    options.window_before = given.value("before", kUnlimited);
    options.window_after = given.value("after", kUnlimited);
    for (const std::string& argument : golden.names(name, "in.")) {
      if (argument == "mask") options.mask = golden.tensor(name, "in.mask");
      if (argument == "prefix") options.prefix_lengths = golden.tensor(name, "in.prefix");
    }
    OpResult expected{golden.tensor(name, "out"), {}};
    std::vector<Tensor> inputs;
    for (const char* input : {"query", "key", "value"}) {
      inputs.push_back(golden.tensor(name, std::string("in.") + input));
      expected.gradients.push_back(golden.tensor(name, std::string("grad.") + input));
    }
    for (const AttentionFunction path : kAttentionPaths) {
      CAPTURE(path == composed_attention);
      for (const DType type : {DType::f64, DType::f32}) {
        const OpResult got =
            run_op(attention_by(path, options), in_type(inputs, type), golden.tensor(name, "seed"));
        CHECK_BELOW(attention_error(got, expected), type == DType::f64 ? 1e-11 : 1e-5);
      }
    }
  }
}

TEST_CASE("gradients of both orders of a packed projection") {
  Generator random(test_seed(33));
  const PackedHeads heads{4, 2, 3, 2};
  const Tensor packed = random_normal({2, 3, heads.width()}, random);
  AttentionOptions options(causal_masks());
  options.dropout = 0.2, options.dropout_key = {1, 2, 3};
  check_both_orders("attention, packed", [&] { return packed_attention(packed, heads, options); },
                    {{"packed", packed}});
}

TEST_CASE("a packed projection that is used twice gathers both gradients") {
  Generator random(test_seed(34));
  const AttentionInputs in = random_inputs(1, 9, 9, 2, 1, 4, 3, random);
  const Tensor packed = pack(in.list()), seed = random_normal({1, 9, 2, 3}, random);
  const AttentionOptions causal(causal_masks());
  const auto once = [&](const AttentionOptions& options) {
    return run_op(packed_by(heads_of(in), options), {packed}, seed).gradients[0];
  };
  const Op twice = [&](const std::vector<Tensor>& x) {
    return packed_attention(x[0], heads_of(in)) + packed_attention(x[0], heads_of(in), causal);
  };
  CHECK_BELOW(relative_error(run_op(twice, {packed}, seed).gradients[0], once({}) + once(causal)), 1e-14);
}

TEST_CASE("an empty packed projection gives nothing") {
  CHECK(packed_attention(Tensor::zeros({0, 3, 12}), {2, 1, 3, 3}).shape() == Shape{0, 3, 2, 3});
  CHECK(packed_attention(Tensor::zeros({2, 0, 12}), {2, 1, 3, 3}).shape() == Shape{2, 0, 2, 3});
}
