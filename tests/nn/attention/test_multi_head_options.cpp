#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/gradcheck_table.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

/// Head widths of their own: d_k 4, d_v 5.
AttentionConfig small_config() {
  AttentionConfig config;
  config.width = 6;
  config.heads = 3;
  config.key_width = 4;
  config.value_width = 5;
  config.packed = false;
  return config;
}

MultiHeadAttention apart_of(const AttentionConfig& config) {
  return random_module<MultiHeadAttention>(config);
}

/// The same layer with its three projections in one.
MultiHeadAttention packed_of(AttentionConfig config) {
  MultiHeadAttention apart = apart_of(config);
  config.packed = true;
  MultiHeadAttention packed = apart_of(config);
  std::map<std::string, Tensor> p;
  for (const auto& [name, parameter] : apart.named_parameters()) p[name] = parameter.value();
  for (auto& [name, parameter] : packed.named_parameters()) {
    TensorList parts;
    for (const std::string& part : golden_parts(name)) parts.push_back(p.at(part));
    parameter.set_value(concat(parts, 0));
  }
  return packed;
}

Tensor swapped(const Tensor& x) { return permute(x, {1, 0, 2}); }

/// Compares what two functions of the inputs give, and the inputs' gradients.
template <class A, class B>
void check_same(const A& a, const B& b, const std::vector<Tensor>& inputs) {
  const auto run = [&](const auto& layer) {
    Tape tape;
    std::vector<Tensor> in;
    for (const Tensor& x : inputs) {
      in.push_back(x.detach());
      tape.watch(in.back());
    }
    std::vector<Tensor> result = {layer(in)};
    for (const Tensor& gradient : tape.gradients(result[0], in, random_values(result[0].shape(), 9))) {
      result.push_back(gradient);
    }
    return result;
  };
  const std::vector<Tensor> first = run(a), second = run(b);
  for (std::size_t i = 0; i < first.size(); ++i) CHECK_BELOW(relative_error(first[i], second[i]), 1e-13);
}

}  // namespace

TEST_SUITE("nn/attention/multi_head options") {
  TEST_CASE("projections packed in one matrix give what three give, gradients included, for any inputs") {
    AttentionConfig config = small_config();
    for (const bool bias : {true, false}) {
      for (const bool rotary : {false, true}) {
        config.bias = bias;
        config.rotary = rotary;
        MultiHeadAttention apart = apart_of(config), packed = packed_of(config);
        CHECK(packed.parameter_count() == apart.parameter_count());
        const Tensor x = random_values({2, 5, 6}, 3), y = random_values({2, 4, 6}, 4),
                     z = random_values({2, 4, 6}, 5);
        AttentionContext masks;
        masks.causal = true;
        masks.key_mask = real_tokens({4, 5}, 5);
        using In = std::vector<Tensor>;
        const auto self = [&](const MultiHeadAttention& layer) {
          return [&](const In& in) { return layer(in[0], in[0], masks); };
        };
        const auto cross = [&](const MultiHeadAttention& layer) {
          return [&](const In& in) { return layer(in[0], in[1]); };
        };
        const auto three = [&](const MultiHeadAttention& layer) {
          return [&](const In& in) { return layer(in[0], in[1], in[2], {}); };
        };
        check_same(self(apart), self(packed), {x});
        if (rotary) continue;
        check_same(cross(apart), cross(packed), {x, y});
        check_same(three(apart), three(packed), {x, y, z});

        Tape tape;
        tape.backward(apart(x, x, masks) + packed(x, x, masks), random_values(x.shape(), 9));
        std::map<std::string, Tensor> gradients;
        for (const auto& [name, parameter] : apart.named_parameters()) gradients[name] = parameter.gradient();
        for (const auto& [path, parameter] : packed.named_parameters()) {
          const std::string& name = path;
          TensorList parts;
          for (const std::string& part : golden_parts(name)) parts.push_back(gradients.at(part));
          INFO(name);
          CHECK_BELOW(relative_error(parameter.gradient(), concat(parts, 0)), 1e-13);
        }
      }
    }
  }

  TEST_CASE("packed or not, one seed gives the same initial values") {
    AttentionConfig config = small_config();
    config.width = 12;
    Generator a(test_seed(7)), b(test_seed(7));
    MultiHeadAttention apart(config, a);
    config.packed = true;
    MultiHeadAttention packed(config, b);
    std::map<std::string, Tensor> p;
    for (const auto& [name, parameter] : apart.named_parameters()) p[name] = parameter.value();
    for (const auto& [path, parameter] : packed.named_parameters()) {
      const std::string& name = path;
      TensorList parts;
      for (const std::string& part : golden_parts(name)) parts.push_back(p.at(part));
      CHECK(same_bits(parameter.value(), concat(parts, 0)));
    }
  }

  TEST_CASE("sequence-first inputs give what batch-first ones give, with axes swapped") {
    AttentionConfig config = small_config();
    const Tensor x = random_values({2, 5, 6}, 3), y = random_values({2, 4, 6}, 4);
    for (const bool packed : {false, true}) {
      config.packed = packed;
      config.sequence_first = false;
      MultiHeadAttention batch = apart_of(config);
      config.sequence_first = true;
      MultiHeadAttention sequence = apart_of(config);
      AttentionContext masks;
      masks.key_mask = real_tokens({4, 2}, 4);
      Tensor batch_weights, sequence_weights;
      AttentionContext batch_context = masks, sequence_context = masks;
      batch_context.weights = &batch_weights;
      sequence_context.weights = &sequence_weights;
      const Tensor expected = batch(x, y, batch_context);
      CHECK(same_bits(swapped(sequence(swapped(x), swapped(y), sequence_context)), expected));
      CHECK(same_bits(batch_weights, sequence_weights));
      const Tensor t = swapped(x);
      CHECK(same_bits(swapped(sequence(t, t)), batch(x, x)));
    }
  }

  TEST_CASE("rotary positions: only distances count, and both layouts turn queries and keys") {
    AttentionConfig config = small_config();
    config.rotary = true;
    const Tensor x = random_values({2, 5, 6}, 3);
    for (const RotaryLayout layout : {RotaryLayout::interleaved, RotaryLayout::half_split}) {
      config.rotations.layout = layout;
      MultiHeadAttention attention = apart_of(config);
      AttentionContext from_zero, moved, stretched;
      from_zero.positions = ids_of({0, 1, 2, 3, 4}, {5});
      moved.positions = ids_of({7, 8, 9, 10, 11, 3, 4, 5, 6, 7}, {2, 5});
      stretched.positions = ids_of({0, 2, 4, 6, 8}, {5});
      const Tensor y = attention(x, x);
      CHECK(same_bits(attention(x, x, from_zero), y));
      CHECK_BELOW(relative_error(attention(x, x, moved), y), 1e-12);
      CHECK(relative_error(attention(x, x, stretched), y) > 1e-3);

      std::map<std::string, Tensor> p;
      for (const auto& [name, parameter] : attention.named_parameters()) p[name] = parameter.value();
      const auto heads = [&](const std::string& part, Index width) {
        return reshape(linear(x, p[part + ".weight"], p[part + ".bias"]), {2, 5, 3, width});
      };
      const Tensor mixed = composed_attention(
          rotary(heads("query", 4), from_zero.positions, config.rotations),
          rotary(heads("key", 4), from_zero.positions, config.rotations), heads("value", 5));
      CHECK_BELOW(relative_error(y, linear(reshape(mixed, {2, 5, 15}), p["output.weight"], p["output.bias"])),
                  1e-13);
    }
  }

  TEST_CASE("gradients of both orders agree with differences in every mode") {
    const Tensor x = random_values({2, 4, 6}, 3), memory = random_values({2, 3, 6}, 4),
                 other = random_values({2, 3, 6}, 5);
    const auto check = [&](const std::string& name, AttentionConfig config, NamedTensors inputs,
                           const auto& call) {
      for (const bool packed : {false, true}) {
        config.packed = packed;
        MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
        check_gradients("multi_head " + name + (packed ? " packed" : ""),
                        gradcheck_module(
                            layer, inputs, [&] { return call(layer); }, second_order()));
      }
    };
    const auto causal = [&](const MultiHeadAttention& layer) {
      AttentionContext masks;
      masks.causal = true;
      masks.key_mask = real_tokens({2, 4}, 4);
      return layer(x, x, masks);
    };
    check("wide causal padded", small_config(), {{"x", x}}, causal);
    check("three inputs", small_config(), {{"x", x}, {"key", memory}, {"value", other}},
          [&](const MultiHeadAttention& layer) { return layer(x, memory, other, {}); });
    AttentionConfig config = small_config();
    config.rotary = true;
    check("rotary", config, {{"x", x}}, causal);
    config.rotations.layout = RotaryLayout::half_split;
    check("rotary half-split", config, {{"x", x}}, causal);
    config = small_config();
    config.sequence_first = true;
    check("sequence first", config, {{"x", x}}, [&](const MultiHeadAttention& layer) { return layer(x, x); });
    config = small_config();
    config.bias = false;
    check("without biases", config, {{"x", x}}, causal);
    config = small_config();
    config.dropout = 0.3;
    config.output_dropout = 0.3;
    check("dropout on weights and output", config, {{"x", x}}, causal);
  }

  TEST_CASE("dropout on the output drops outputs in training, with a counter of its own") {
    AttentionConfig config = small_config();
    config.output_dropout = 0.5;
    MultiHeadAttention attention = apart_of(config);
    const Tensor x = random_values({2, 40, 6}, 3);
    const Tensor dropped = attention(x, x);
    attention.eval();
    const Tensor whole = attention(x, x);
    Index zeros = 0;
    for (Index i = 0; i < whole.elements(); ++i) {
      zeros += dropped.at(i) == 0;
      if (dropped.at(i) != 0) REQUIRE_BELOW(deviation(dropped.at(i), 2 * whole.at(i)), 1e-12);
    }
    CHECK(zeros > 180);
    CHECK(zeros < 300);
    std::map<std::string, std::uint64_t> draws;
    for (const auto& [name, counter] : attention.named_counters()) draws[name] = *counter;
    CHECK(draws == std::map<std::string, std::uint64_t>{{"dropout.step", 0}, {"output_dropout.step", 1}});
  }

  TEST_CASE("biases are there by option, for the inputs and for the output") {
    const auto names = [](bool bias, bool output_bias) {
      AttentionConfig config = small_config();
      config.bias = bias;
      config.output_bias = output_bias;
      MultiHeadAttention attention = apart_of(config);
      std::string text;
      for (const auto& [name, parameter] : attention.named_parameters()) text += name + " ";
      return text;
    };
    CHECK(names(true, false) ==
          "query.weight query.bias key.weight key.bias value.weight value.bias output.weight ");
    CHECK(names(false, true) == "query.weight key.weight value.weight output.weight output.bias ");
  }

  TEST_CASE("the parts of packed projections are told, by name") {
    Generator random(test_seed(1));
    AttentionConfig config = small_config();
    config.packed = true;
    config.heads = 6;
    config.key_width = 2, config.value_width = 3;
    using Parts = std::map<std::string, std::vector<Index>>;
    CHECK(MultiHeadAttention(config, random).row_parts() == Parts{{"query_key_value.weight", {12, 12, 18}}});
    config.kind = "gqa", config.groups = 2;
    CHECK(MultiHeadAttention(config, random).row_parts() == Parts{{"query_key_value.weight", {12, 4, 6}}});
    config.cross = true;
    CHECK(MultiHeadAttention(config, random).row_parts() == Parts{{"key_value.weight", {4, 6}}});
    CHECK(apart_of(small_config()).row_parts().empty());
  }

  TEST_CASE("what makes no sense is refused") {
    Generator random(test_seed(1));
    AttentionConfig config = small_config();
    config.kind = "mla";
    config.qk_norm = QkNorm::rms;
    CHECK(message_of<Error>([&] { config.check(); }) ==
          "[attention] qk_norm is for mha, gqa, mqa; got attention=mla, qk_norm=rms; try qk_norm=none");
    config = small_config();
    config.packed = true;
    config.value_memory_width = 7;
    CHECK(message_of<Error>([&] { MultiHeadAttention(config, random); }) ==
          "[attention] a packed projection needs inputs of one width; got attention=mha, width=6, "
          "memory_width=6, "
          "value_memory_width=7; try packed=false");
    config = small_config();
    config.heads = 0;
    CHECK(message_of<Error>([&] { MultiHeadAttention(config, random); }) ==
          "[attention] heads must be from 1 to 2147483647; got 0");
    config = small_config();
    config.rotary = true;
    const MultiHeadAttention rotary = apart_of(config);
    const Tensor x = random_values({2, 4, 6}, 3), memory = random_values({2, 3, 6}, 4);
    CHECK(message_of<Error>([&] { rotary(x, memory); }) ==
          "[multi_head] rotary positions are for self-attention; got a memory that is not the query");
    const Tensor flat = random_values({4, 6}, 3);
    CHECK(
        message_of<ShapeError>([&] { rotary(flat, flat); }) ==
        "[multi_head] inputs must be [B, T, C]; got query=f64[4,6]; try a batch of one sequence, [1, T, C]");
  }
}
