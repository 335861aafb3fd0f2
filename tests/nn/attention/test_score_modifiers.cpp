#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/attention/relative_bias.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/attention/score_modifiers.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/gradcheck_table.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace tapeformer;

namespace {

struct Modified {
  const char* name;
  void (*choose)(AttentionConfig&);
};

constexpr Modified kModified[] = {
    {"softcap", [](AttentionConfig& c) { c.softcap = 1.5; }},
    {"alibi", [](AttentionConfig& c) { c.relative_bias = RelativeBias::alibi; }},
    {"buckets",
     [](AttentionConfig& c) {
       c.relative_bias = RelativeBias::buckets, c.bias_buckets = 8, c.bias_distance = 20;
     }},
    {"sinks", [](AttentionConfig& c) { c.sinks = true; }},
    {"sigmoid", [](AttentionConfig& c) { c.weighting = AttentionWeighting::sigmoid, c.sigmoid_keys = 16; }},
    {"all of softmax",
     [](AttentionConfig& c) { c.softcap = 1.5, c.sinks = true, c.relative_bias = RelativeBias::alibi; }},
};

AttentionConfig modified_config(const Modified& variant, const char* kind = "mha") {
  AttentionConfig config;
  config.kind = kind, config.width = 8, config.heads = 4;
  variant.choose(config);
  return config;
}

/// Heads are slices of the input, and the output is the heads side by side.
MultiHeadAttention transparent(const AttentionConfig& config) {
  MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
  const Index C = config.width;
  const Tensor one = Tensor::zeros({C, C}, DType::f64);
  for (Index i = 0; i < C; ++i) one.data<double>()[i * C + i] = 1;
  for (auto& [name, parameter] : layer.named_parameters()) {
    if (name == "query_key_value.weight") parameter.set_value(concat({one, one, one}, 0));
    if (name == "output.weight") parameter.set_value(one);
    if (name.find("bias") != std::string::npos && name.find("output") == 0)
      parameter.set_value(Tensor::zeros({C}, DType::f64));
    if (name == "query_key_value.bias") parameter.set_value(Tensor::zeros({3 * C}, DType::f64));
  }
  return layer;
}

Tensor parameter_of(Module& layer, const std::string& wanted) {
  for (auto& [name, parameter] : layer.named_parameters()) {
    if (name == wanted) return parameter.value();
  }
  FAIL("no parameter " << wanted);
  return {};
}

std::string refusal(const AttentionConfig& config) {
  return message_of<Error>([&] { config.check(); });
}

}  // namespace

TEST_SUITE("nn/attention/score_modifiers") {
  TEST_CASE("layers hand the operation what their options say") {
    const Tensor x = random_values({2, 5, 8}, 3);
    const Tensor heads = reshape(x, {2, 5, 4, 2});
    for (const Modified& variant : kModified) {
      CAPTURE(variant.name);
      const AttentionConfig config = modified_config(variant);
      MultiHeadAttention layer = transparent(config);
      for (const bool causal : {false, true}) {
        AttentionOptions options;
        options.causal = causal;
        if (config.softcap > 0) {
          options.score_function = ScoreFunction::softcap;
          options.score_parameter = Tensor::full({1}, 1.5, DType::f64);
        }
        if (config.sinks) options.sinks = parameter_of(layer, "sinks");
        if (config.relative_bias == RelativeBias::alibi)
          options.relative_bias = alibi_bias(alibi_slopes(4).to(DType::f64), 4);
        if (config.relative_bias == RelativeBias::buckets)
          options.relative_bias =
              bucketed_bias(parameter_of(layer, "relative_bias.weight"), 4, {8, !causal, 20});
        if (config.weighting == AttentionWeighting::sigmoid) {
          options.weighting = AttentionWeighting::sigmoid;
          options.relative_bias = broadcast_to(reshape(parameter_of(layer, "sigmoid_shift"), {4, 1}), {4, 9});
        }
        AttentionContext context;
        context.causal = causal;
        const Tensor expected = scaled_dot_product_attention(heads, heads, heads, options);
        CHECK_BELOW(relative_error(layer(x, x, context), reshape(expected, {2, 5, 8})), 1e-14);
        const Tensor plain = scaled_dot_product_attention(heads, heads, heads, AttentionOptions(context));
        CHECK(relative_error(plain, expected) > 1e-3);
      }
    }
  }

  TEST_CASE("first and second derivatives of every modifier, in every kind that has them") {
    for (const char* const kind : {"mha", "gqa", "mqa"}) {
      for (const Modified& variant : kModified) {
        MultiHeadAttention layer = random_module<MultiHeadAttention>(modified_config(variant, kind));
        const Tensor x = random_values({2, 4, 8}, 3);
        AttentionContext context;
        context.causal = true;
        check_gradients(std::string(kind) + " " + variant.name,
                        gradcheck_module(
                            layer, {{"x", x}}, [&] { return layer(x, x, context); }, second_order(6)));
      }
    }
  }

  TEST_CASE("a cache gives what the whole gives, over 200 tokens") {
    const SingleThread single;
    const Index length = cached_tokens();
    for (const Modified& variant : kModified) {
      CAPTURE(variant.name);
      MultiHeadAttention layer = random_module<MultiHeadAttention>(modified_config(variant, "gqa"));
      const Tensor x = random_values({1, length, 8}, 3);
      AttentionContext whole;
      whole.causal = true;
      const Tensor expected = layer(x, x, whole);
      const auto cache = make_cache({}, layer.cache_widths());
      TensorList rows;
      for (Index from = 0; from < length; from += from < 7 ? 7 : 1) {
        const Tensor fresh = slice(x, 1, from, from < 7 ? 7 : 1);
        AttentionContext context;
        context.causal = true, context.cache = cache.get();
        rows.push_back(layer(fresh, fresh, context));
      }
      CHECK_BELOW(relative_error(concat(rows, 1), expected), 1e-12);
    }
  }

  TEST_CASE("initial values: zero sinks, the paper's slopes, and -log of the keys for sigmoid weights") {
    Generator random(test_seed(1));
    AttentionConfig config = modified_config(kModified[3]);
    MultiHeadAttention with_sinks(config, random);
    CHECK(parameter_of(with_sinks, "sinks").at(3) == 0);
    MultiHeadAttention sigmoid(modified_config(kModified[4]), random);
    CHECK(parameter_of(sigmoid, "sigmoid_shift").at(3) == doctest::Approx(-std::log(16.0)));
  }

  TEST_CASE("what does not go together is refused by name") {
    AttentionConfig config = modified_config(kModified[4]);
    config.sinks = true;
    CHECK(refusal(config) ==
          "[attention] sinks join the sum of a softmax; got attention=mha, weighting=sigmoid, sinks=true; "
          "try sinks=false");
  }

  TEST_CASE("cross-attention has no distances, and its relative bias is left out") {
    AttentionConfig config = modified_config(kModified[2]);
    config.cross = true;
    CHECK(config.resolved().relative_bias == RelativeBias::none);
  }
}
