#include <tapeformer/tests/nn/transformer/decoder_only_case.h>
#include <tapeformer/tests/reference/check_gradients.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

AttentionContext causal() {
  AttentionContext context;
  context.causal = true;
  return context;
}

DecoderOnlyLayer layer_of(const DecoderOnlyConfig& config) { return random_module<DecoderOnlyLayer>(config); }

void fill(Module& module, const std::string& name, double value) {
  for (auto& [path, parameter] : module.named_parameters()) {
    if (path == name) return parameter.set_value(Tensor::full(parameter.value().shape(), value, DType::f64));
  }
  FAIL("no parameter is called " << name);
}

/// A layer that adds `attention` and then `feed_forward` to any input.
DecoderOnlyLayer constant_layer(DecoderOnlyConfig config, double attention, double feed_forward) {
  config.attention.bias = config.feed_forward_bias = true;
  DecoderOnlyLayer layer = layer_of(config);
  fill(layer, "attention.output.weight", 0);
  fill(layer, "attention.output.bias", attention);
  fill(layer, "feed_forward.down.weight", 0);
  fill(layer, "feed_forward.down.bias", feed_forward);
  return layer;
}

}  // namespace

TEST_CASE("dropout applies to what each sublayer adds, by separate draws") {
  DecoderOnlyConfig config = tiny_config();
  config.residual_dropout = 0.5;
  DecoderOnlyLayer layer = constant_layer(config, 1, 10);
  const Tensor x = Tensor::zeros({16, 4, 8}, DType::f64), y = layer(x, causal());
  std::map<double, int> seen;
  for (Index i = 0; i < y.elements(); ++i) ++seen[y.at(i)];
  REQUIRE(seen.size() == 4);
  for (const double sum : {0.0, 2.0, 20.0, 22.0})
    CHECK(seen[sum] > 60);  // of 512 / 4 = 128, with a deviation of 10
  layer.eval();
  CHECK(layer(x, causal()).at(0) == 11);
}

TEST_CASE("the norms are as configured") {
  DecoderOnlyConfig config = tiny_config();
  const Tensor x = random_values({1, 3, 8}, 6);
  const Tensor y = layer_of(config)(x, causal());
  config.epsilon = 0.5;
  CHECK(relative_error(layer_of(config)(x, causal()), y) > 1e-3);
  DecoderOnlyLayer plain = layer_of(config);
  CHECK(plain.named_parameters()[0].first == "attention_norm.weight");
  CHECK(plain.named_parameters()[1].first == "attention.query_key_value.weight");
  config.norm_bias = true;
  DecoderOnlyLayer biased = layer_of(config);
  CHECK(biased.parameter_count() == plain.parameter_count() + 2 * 8);
  config.norm = NormKind::rms;
  CHECK(layer_of(config).parameter_count() == plain.parameter_count());
  CHECK(relative_error(layer_of(config)(x, causal()), plain(x, causal())) > 1e-3);
}

TEST_CASE("sublayers read convolutions of the norms, cached with the layer") {
  DecoderOnlyConfig config = tiny_config();
  config.short_convolution = 2;
  DecoderOnlyLayer layer = layer_of(config);
  const Tensor x = random_values({2, 3, 8}, 5), y = layer(x, causal());
  for (const char* name : {"attention_convolution.weight", "feed_forward_convolution.weight"}) {
    fill(layer, name, -0.5);
    CHECK(relative_error(layer(x, causal()), y) > 1e-3);
  }
  const auto cache = make_cache({}, layer.cache_widths());
  AttentionContext context = causal();
  context.cache = cache.get();
  CHECK(message_of<Error>([&] { layer(x, context); }).find("needs their caches") != std::string::npos);
}
