#include <tapeformer/tests/nn/transformer/decoder_only_case.h>

using namespace tapeformer;

namespace {

DecoderOnlyLayer layer_of(const DecoderOnlyConfig& config) { return random_module<DecoderOnlyLayer>(config); }

void fill(Module& module, const std::string& name, double value) {
  set_parameter(module, name, Tensor::full(parameter_of(module, name).value().shape(), value, DType::f64));
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
  const Tensor x = Tensor::zeros({16, 4, 8}, DType::f64), y = layer(x, causal_context());
  std::map<double, int> seen;
  for (Index i = 0; i < y.elements(); ++i) ++seen[y.at(i)];
  REQUIRE(seen.size() == 4);
  for (const double sum : {0.0, 2.0, 20.0, 22.0})
    CHECK(seen[sum] > 60);  // of 512 / 4 = 128, with a deviation of 10
  layer.eval();
  CHECK(layer(x, causal_context()).at(0) == 11);
}

TEST_CASE("with a cache a layer with convolutions needs theirs") {
  DecoderOnlyConfig config = tiny_config();
  config.short_convolution = 2;
  const DecoderOnlyLayer layer = layer_of(config);
  const Tensor x = random_values({2, 3, 8}, 5);
  const auto cache = make_cache({}, layer.cache_widths());
  CHECK_THROWS_WITH_AS(layer(x, causal_context(cache.get())), doctest::Contains("needs their caches"), Error);
}
