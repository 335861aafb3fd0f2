#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/transformer/encoder_layer.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/gradcheck_table.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tapeformer;

TEST_SUITE("nn/transformer/encoder_layer") {
  TEST_CASE("with sublayers that give zero, pre-norm is the identity and post-norm normalises twice") {
    for (const bool norm_first : {true, false}) {
      EncoderLayer layer = random_module<EncoderLayer>(small_layer_config(norm_first));
      std::map<std::string, Tensor> p;
      for (auto& [name, parameter] : layer.named_parameters()) {
        const bool is_last =
            name.find("output.") != std::string::npos || name.find("down.") != std::string::npos;
        if (is_last) parameter.set_value(Tensor::zeros(parameter.value().shape(), DType::f64));
        p[name] = parameter.value();
      }
      const Tensor x = random_values({2, 4, 6}, 3);
      const Tensor once = layer_norm(x, p["self_attention_norm.weight"], p["self_attention_norm.bias"], 1e-5);
      const Tensor twice = layer_norm(once, p["feed_forward_norm.weight"], p["feed_forward_norm.bias"], 1e-5);
      CHECK_BELOW(absolute_error(layer(x), norm_first ? x : twice), 1e-14);
    }
  }

  TEST_CASE("outputs and gradients are PyTorch's") {
    for (const std::string place : {"pre", "post"}) {
      for (const std::string activation : {"relu", "gelu"}) {
        EncoderLayer layer = random_module<EncoderLayer>(golden_layer_config(place, activation));
        check_layer_against_golden(
            "encoder_layer_" + place + "_" + activation, layer,
            [&](const std::map<std::string, Tensor>& in) { return layer(in.at("x"), in.at("may_attend")); });
      }
    }
  }

  TEST_CASE("gradients agree with differences, padded and with dropout") {
    for (const bool norm_first : {true, false}) {
      for (const double dropout : {0.0, 0.3}) {
        EncoderLayer layer = random_module<EncoderLayer>(small_layer_config(norm_first, dropout));
        const Tensor x = random_values({2, 4, 6}, 3), mask = real_tokens({2, 4}, 4);
        const std::string name = std::string("encoder_layer ") + (norm_first ? "pre-norm" : "post-norm");
        const auto run = [&] { return layer(x, mask); };
        if (dropout > 0) {
          check_gradients(name + " dropout", gradcheck_module(layer, {{"x", x}}, run));
        } else {
          check_gradients(name, gradcheck_module(layer, {{"x", x}}, run));
          check_gradients(name, gradcheck_module(layer, {{"x", x}}, run, second_order(8)));
        }
      }
    }
  }

  TEST_CASE("a padded sentence gives what it gives alone, whatever the padding holds") {
    EncoderLayer layer = random_module<EncoderLayer>(small_layer_config(true));
    const Tensor x = random_values({2, 4, 6}, 3), mask = real_tokens({2, 4}, 4);
    std::fill_n(x.data<double>() + 2 * 6, 2 * 6, std::numeric_limits<double>::quiet_NaN());
    const Tensor y = layer(x, mask);
    const Tensor alone = layer(slice(slice(x, 0, 0, 1), 1, 0, 2)), whole = layer(slice(x, 0, 1, 1));
    CHECK_BELOW(absolute_error(slice(slice(y, 0, 0, 1), 1, 0, 2), alone), 1e-14);
    CHECK_BELOW(absolute_error(slice(y, 0, 1, 1), whole), 1e-14);
  }

  TEST_CASE("dropout acts in three kinds of places, each with its counter") {
    EncoderLayer layer = random_module<EncoderLayer>(small_layer_config(true, 0.3));
    std::vector<std::string> names;
    layer(random_values({1, 4, 6}, 3));
    std::map<std::string, std::uint64_t> draws;
    for (const auto& [name, counter] : layer.named_counters()) draws[name] = *counter;
    CHECK(draws == std::map<std::string, std::uint64_t>{{"self_attention.dropout.step", 1},
                                                        {"feed_forward.dropout.step", 1},
                                                        {"dropout.step", 2}});
  }
}
