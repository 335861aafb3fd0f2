#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/transformer/decoder_layer.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/gradcheck_table.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

using namespace tapeformer;

TEST_SUITE("nn/transformer/decoder_layer") {
  TEST_CASE("outputs and gradients are PyTorch's") {
    for (const std::string place : {"pre", "post"}) {
      for (const std::string activation : {"relu", "gelu"}) {
        DecoderLayer layer = random_module<DecoderLayer>(golden_layer_config(place, activation));
        check_layer_against_golden(
            "decoder_layer_" + place + "_" + activation, layer, [&](const std::map<std::string, Tensor>& in) {
              return layer(in.at("x"), in.at("memory"), {in.at("memory_may_attend"), in.at("may_attend")});
            });
      }
    }
  }

  TEST_CASE("gradients agree with differences, padded on both sides and with dropout") {
    for (const bool norm_first : {true, false}) {
      for (const double dropout : {0.0, 0.3}) {
        DecoderLayer layer = random_module<DecoderLayer>(small_layer_config(norm_first, dropout));
        const Tensor x = random_values({2, 3, 6}, 3), memory = random_values({2, 5, 6}, 4);
        const Tensor mask = real_tokens({3, 2}, 3), memory_mask = real_tokens({2, 5}, 5);
        const std::string name = std::string("decoder_layer ") + (norm_first ? "pre-norm" : "post-norm");
        const NamedTensors inputs = {{"x", x}, {"memory", memory}};
        const auto run = [&] { return layer(x, memory, {memory_mask, mask}); };
        if (dropout > 0) {
          check_gradients(name + " dropout", gradcheck_module(layer, inputs, run));
        } else {
          check_gradients(name, gradcheck_module(layer, inputs, run));
          check_gradients(name, gradcheck_module(layer, inputs, run, second_order(8)));
        }
      }
    }
  }

  TEST_CASE("no output sees a later token, and every output sees all of the memory") {
    for (const bool norm_first : {true, false}) {
      DecoderLayer layer = random_module<DecoderLayer>(small_layer_config(norm_first));
      const Tensor x = random_values({1, 4, 6}, 3), memory = random_values({1, 5, 6}, 4);
      const Tensor before = layer(x, memory), later = x.clone(), other = memory.clone();
      later.data<double>()[3 * 6] += 1;
      other.data<double>()[4 * 6] += 1;
      const Tensor changed = layer(later, memory), informed = layer(x, other);
      for (Index t = 0; t < 4; ++t) {
        const auto row = [&](const Tensor& y) { return slice(y, 1, t, 1); };
        CHECK(same_bits(row(before), row(changed)) == (t < 3));
        CHECK(absolute_error(row(before), row(informed)) > 1e-4);
      }
    }
  }

  TEST_CASE("padding of the target and of the memory does not show in what is real") {
    DecoderLayer layer = random_module<DecoderLayer>(small_layer_config(false));
    const Tensor x = random_values({2, 4, 6}, 3), memory = random_values({2, 5, 6}, 4);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    std::fill_n(x.data<double>() + 3 * 6, 6, nan);
    std::fill_n(memory.data<double>() + 2 * 6, 3 * 6, nan);
    const Tensor y = layer(x, memory, {real_tokens({2, 5}, 5), real_tokens({3, 4}, 4)});
    const auto part = [](const Tensor& z, Index b, Index length) {
      return slice(slice(z, 0, b, 1), 1, 0, length);
    };
    CHECK_BELOW(absolute_error(part(y, 0, 3), layer(part(x, 0, 3), part(memory, 0, 2))), 1e-14);
    CHECK_BELOW(absolute_error(part(y, 1, 4), layer(part(x, 1, 4), part(memory, 1, 5))), 1e-14);
  }

  TEST_CASE("its parts are named as they are in papers") {
    DecoderLayer layer = random_module<DecoderLayer>(small_layer_config(true));
    std::vector<std::string> parts;
    for (const auto& [name, parameter] : layer.named_parameters()) {
      const std::string part = name.substr(0, name.find('.'));
      if (parts.empty() || parts.back() != part) parts.push_back(part);
    }
    CHECK(parts == std::vector<std::string>{"self_attention", "self_attention_norm", "cross_attention",
                                            "cross_attention_norm", "feed_forward", "feed_forward_norm"});
  }
}
