#include <tapeformer/nn/transformer/transformer_layer.h>
#include <tapeformer/tests/nn/module_case.h>

#include <algorithm>
#include <limits>

using namespace tapeformer;

constexpr TransformerSide kEncoder = TransformerSide::encoder, kDecoder = TransformerSide::decoder;

TEST_CASE("outputs and gradients are PyTorch's") {
  for (const std::string place : {"pre", "post"}) {
    for (const std::string activation : {"relu", "gelu"}) {
      const TransformerLayerConfig config = golden_layer_config(place, activation);
      auto encoder = random_module<TransformerLayer>(config);
      auto decoder = random_module<TransformerLayer>(config, kDecoder);
      using In = std::map<std::string, Tensor>;
      check_layer_against_golden("encoder_layer_" + place + "_" + activation, encoder, [&](const In& in) {
        return encoder(in.at("x"), {}, {in.at("may_attend")});
      });
      check_layer_against_golden("decoder_layer_" + place + "_" + activation, decoder, [&](const In& in) {
        return decoder(in.at("x"), in.at("memory"), {in.at("may_attend"), in.at("memory_may_attend")});
      });
    }
  }
}

TEST_CASE("real tokens get what they get without padding, whatever the padding holds") {
  for (const TransformerSide side : {kEncoder, kDecoder}) {
    auto layer = random_module<TransformerLayer>(small_layer_config(side == kEncoder), side);
    const Tensor x = random_values({2, 4, 6}, 3), memory = random_values({2, 5, 6}, 4);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    std::fill_n(x.data<double>() + 3 * 6, 6, nan);
    std::fill_n(memory.data<double>() + 2 * 6, 3 * 6, nan);
    const Tensor y = layer(x, memory, {real_tokens({3, 4}, 4), real_tokens({2, 5}, 5)});
    const auto part = [](const Tensor& z, Index b, Index length) {
      return slice(slice(z, 0, b, 1), 1, 0, length);
    };
    CHECK_BELOW(absolute_error(part(y, 0, 3), layer(part(x, 0, 3), part(memory, 0, 2))), 1e-14);
    CHECK_BELOW(absolute_error(part(y, 1, 4), layer(part(x, 1, 4), part(memory, 1, 5))), 1e-14);
  }
}

TEST_CASE("dropout acts in three kinds of places, two of which may have their own rates") {
  using Rate = std::optional<double>;
  using Draws = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;  // of each place's counter
  for (const auto& [all, attention, feed_forward, expected] :
       {std::tuple(0.3, Rate(), Rate(), Draws(1, 1, 2)),
        {0.3, 0.0, {}, {0, 1, 2}},
        {0.3, {}, 0.0, {1, 0, 2}},
        {0.0, 0.3, {}, {1, 0, 0}},
        {0.0, {}, 0.3, {0, 1, 0}}}) {
    TransformerLayerConfig config = small_layer_config(true, all);
    config.attention_dropout = attention, config.feed_forward_dropout = feed_forward;
    auto layer = random_module<TransformerLayer>(config);
    layer(random_values({1, 4, 6}, 3));
    std::map<std::string, std::uint64_t> draws;
    for (const auto& [name, counter] : layer.named_counters()) draws[name] = *counter;
    CHECK(Draws(draws.at("self_attention.dropout.step"), draws.at("feed_forward.dropout.step"),
                draws.at("dropout.step")) == expected);
  }
}
