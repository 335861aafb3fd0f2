#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/nn/attention/multi_head_case.h>
#include <tapeformer/tests/reference/gradcheck_table.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

using namespace tapeformer;

namespace {

AttentionConfig sized(Index width, Index heads, bool bias = true, double dropout = 0) {
  AttentionConfig config;
  config.width = width;
  config.heads = heads;
  config.packed = false;
  config.bias = bias;
  config.dropout = dropout;
  return config;
}

/// Widths that all differ.
AttentionConfig wide(double dropout = 0) {
  AttentionConfig config = sized(6, 3, true, dropout);
  config.memory_width = 4;
  config.value_memory_width = 3;
  config.key_width = 5;
  config.value_width = 7;
  return config;
}

AttentionConfig cross_of(AttentionConfig config, Index memory_width) {
  config.memory_width = memory_width;
  config.value_memory_width = 0;
  return config;
}

const auto whole_attention = random_module<MultiHeadAttention, AttentionConfig>;

std::vector<double> affine_row(const Tensor& x, Index row, const Tensor& weight, const Tensor& bias) {
  const Index outputs = weight.size(0), inputs = weight.size(1);
  std::vector<double> y;
  for (Index o = 0; o < outputs; ++o) {
    double total = bias.at(o);
    for (Index i = 0; i < inputs; ++i) total += weight.at(o * inputs + i) * x.at(row * inputs + i);
    y.push_back(total);
  }
  return y;
}

/// The layer in plain loops. `may_attend(b, h, t, s)`.
template <class MayAttend>
Tensor attention_oracle(MultiHeadAttention& attention, Index heads, const Tensor& query, const Tensor& key,
                        const Tensor& value, const MayAttend& may_attend) {
  std::map<std::string, Tensor> p;
  for (const auto& [name, parameter] : attention.named_parameters()) p[name] = parameter.value();
  const Index batch = query.size(0), length = query.size(1), memory_length = key.size(1);
  const auto key_width = static_cast<std::size_t>(p["key.weight"].size(0) / heads),
             value_width = static_cast<std::size_t>(p["value.weight"].size(0) / heads);
  std::vector<double> out;
  for (Index b = 0; b < batch; ++b) {
    for (Index t = 0; t < length; ++t) {
      const auto q = affine_row(query, b * length + t, p["query.weight"], p["query.bias"]);
      std::vector<double> mixed;
      for (Index h = 0; h < heads; ++h) {
        const auto head = static_cast<std::size_t>(h);
        std::vector<double> sum(value_width);
        double total = 0;
        for (Index s = 0; s < memory_length; ++s) {
          if (!may_attend(b, h, t, s)) continue;
          const auto k = affine_row(key, b * memory_length + s, p["key.weight"], p["key.bias"]);
          const auto v = affine_row(value, b * memory_length + s, p["value.weight"], p["value.bias"]);
          double score = 0;
          for (std::size_t i = 0; i < key_width; ++i)
            score += q[head * key_width + i] * k[head * key_width + i];
          const double weight = std::exp(score / std::sqrt(static_cast<double>(key_width)));
          total += weight;
          for (std::size_t i = 0; i < value_width; ++i) sum[i] += weight * v[head * value_width + i];
        }
        for (const double part : sum) mixed.push_back(total > 0 ? part / total : 0);
      }
      const Tensor row = Tensor::from(mixed, {1, static_cast<Index>(mixed.size())});
      for (const double y : affine_row(row, 0, p["output.weight"], p["output.bias"])) out.push_back(y);
    }
  }
  return Tensor::from(out, {batch, length, p["output.weight"].size(0)});
}

/// Rows of `count` heads from row `from` on, each head `repeats` times.
Tensor repeated_rows(const Tensor& packed, Index from, Index count, Index width, Index repeats) {
  TensorList heads;
  for (Index head = 0; head < count * repeats; ++head)
    heads.push_back(slice(packed, 0, from + head / repeats * width, width));
  return concat(heads, 0);
}

const AttentionConfig kWide = cross_of(wide(), 4);

Tensor sequence_first(const Tensor& x) { return permute(x, {1, 0, 2}); }

}  // namespace

TEST_SUITE("nn/attention/multi_head") {
  TEST_CASE("two tokens attending to each other, worked by hand with one head and with two") {
    // With identity projections the scores are x x^T / sqrt(d_k).
    for (const Index heads : {1, 2}) {
      MultiHeadAttention attention = whole_attention(sized(2, heads, false));
      for (auto& [name, parameter] : attention.named_parameters())
        parameter.set_value(values({1, 0, 0, 1}, {2, 2}));
      const Tensor x = values({1, 0, 0, 1}, {1, 2, 2});
      Tensor weights;
      AttentionContext context;
      context.weights = &weights;
      const Tensor y = attention(x, x, context);
      const double e = std::exp(heads == 1 ? 1 / std::sqrt(2.0) : 1.0), a = e / (e + 1), half = 0.5;
      // One head: a token attends to itself with a. Two heads see one coordinate each: the one that is 1 in
      // this token attends with a, the one that is 0 scores everything 0.
      CHECK_BELOW(absolute_error(y, heads == 1 ? values({a, 1 - a, 1 - a, a}, {1, 2, 2})
                                               : values({a, half, half, a}, {1, 2, 2})),
                  1e-15);
      CHECK_BELOW(absolute_error(weights, heads == 1 ? values({a, 1 - a, 1 - a, a}, {1, 1, 2, 2})
                                                     : values({a, 1 - a, half, half, half, half, 1 - a, a},
                                                              {1, 2, 2, 2})),
                  1e-15);
    }
  }

  TEST_CASE("it agrees with plain loops for d_k, d_v, lengths and widths that all differ, under each mask") {
    MultiHeadAttention attention = whole_attention(kWide);
    const Index T = 5, S = 8;
    const Tensor query = random_values({2, T, 6}, 3), memory = random_values({2, S, 4}, 4);
    AttentionContext padding, causal, boolean;
    padding.key_mask = real_tokens({3, 8}, S);
    causal.causal = true;
    Generator random(test_seed(5));
    boolean.mask = random_mask({2, 3, T, S}, random);
    boolean.key_mask = padding.key_mask;
    const auto real = [&](Index b, Index s) { return padding.key_mask.at(b * S + s) != 0; };
    CHECK_BELOW(relative_error(attention(query, memory),
                               attention_oracle(attention, 3, query, memory, memory,
                                                [](Index, Index, Index, Index) { return true; })),
                1e-13);
    CHECK_BELOW(relative_error(attention(query, memory, padding),
                               attention_oracle(attention, 3, query, memory, memory,
                                                [&](Index b, Index, Index, Index s) { return real(b, s); })),
                1e-13);
    CHECK_BELOW(
        relative_error(attention(query, memory, causal),
                       attention_oracle(attention, 3, query, memory, memory,
                                        [&](Index, Index, Index t, Index s) { return s <= t + S - T; })),
        1e-13);
    CHECK_BELOW(relative_error(attention(query, memory, boolean),
                               attention_oracle(attention, 3, query, memory, memory,
                                                [&](Index b, Index h, Index t, Index s) {
                                                  return real(b, s) &&
                                                         boolean.mask.at(((b * 3 + h) * T + t) * S + s) != 0;
                                                })),
                1e-13);
  }

  TEST_CASE("keys and values of different inputs agree with plain loops") {
    MultiHeadAttention attention = whole_attention(wide());
    const Tensor query = random_values({2, 5, 6}, 3), key = random_values({2, 8, 4}, 4),
                 value = random_values({2, 8, 3}, 5);
    AttentionContext padding;
    padding.key_mask = real_tokens({3, 8}, 8);
    const Tensor expected =
        attention_oracle(attention, 3, query, key, value,
                         [&](Index b, Index, Index, Index s) { return padding.key_mask.at(b * 8 + s) != 0; });
    CHECK_BELOW(relative_error(attention(query, key, value, padding), expected), 1e-13);
  }

  TEST_CASE("a floating mask is added to the scores: minus infinity forbids, a number weighs") {
    MultiHeadAttention attention = whole_attention(kWide);
    const Tensor query = random_values({2, 5, 6}, 3), memory = random_values({2, 8, 4}, 4);
    Generator random(test_seed(5));
    AttentionContext boolean, floating;
    boolean.mask = random_mask({5, 8}, random);
    floating.mask = filled({5, 8}, [&](Index i) {
      return boolean.mask.at(i) != 0 ? 0 : -std::numeric_limits<double>::infinity();
    });
    CHECK_BELOW(absolute_error(attention(query, memory, floating), attention(query, memory, boolean)), 1e-14);

    Tensor plain, weighed;
    AttentionContext unmasked, doubled;
    unmasked.weights = &plain, doubled.weights = &weighed;
    doubled.mask = filled({1, 8}, [](Index s) { return s == 2 ? std::log(2.0) : 0; });
    attention(query, memory, unmasked);
    attention(query, memory, doubled);
    for (Index row = 0; row < plain.elements() / 8; ++row) {
      const double p = plain.at(row * 8 + 2);
      CHECK_BELOW(deviation(weighed.at(row * 8 + 2), 2 * p / (1 + p)), 1e-12);
    }
  }

  TEST_CASE("a query that may attend to nothing gets the output's bias alone, and passes no gradient") {
    MultiHeadAttention attention = whole_attention(kWide);
    const Tensor query = random_values({2, 5, 6}, 3), memory = random_values({2, 8, 4}, 4);
    AttentionContext masks;
    masks.key_mask = real_tokens({0, 8}, 8);
    Tape tape;
    tape.watch(query);
    tape.watch(memory);
    const Tensor y = attention(query, memory, masks);
    const Tensor bias = attention.named_parameters().back().second;
    for (Index i = 0; i < 30; ++i) CHECK(y.at(i) == bias.at(i % 6));
    const auto gradients = tape.gradients(y, {query, memory}, random_values(y.shape(), 6));
    for (Index i = 0; i < 30; ++i) CHECK(gradients[0].at(i) == 0);
    for (Index i = 0; i < 32; ++i) CHECK(gradients[1].at(i) == 0);
    CHECK(gradients[0].at(30) != 0);
  }

  TEST_CASE("padding may hold anything, NaN included") {
    MultiHeadAttention attention = whole_attention(kWide);
    const Tensor query = random_values({2, 5, 6}, 3), memory = random_values({2, 8, 4}, 4);
    AttentionContext masks;
    masks.key_mask = real_tokens({3, 8}, 8);
    const Tensor expected = attention(query, memory, masks), dirty = memory.clone();
    std::fill_n(dirty.data<double>() + 3 * 4, 5 * 4, std::numeric_limits<double>::quiet_NaN());
    CHECK(absolute_error(attention(query, dirty, masks), expected) == 0);
    Tape tape;
    tape.watch(query);
    const Tensor y = attention(query, dirty, masks);
    const Tensor gradient = tape.gradients(y, {query}, random_values(y.shape(), 6))[0];
    for (Index i = 0; i < gradient.elements(); ++i) REQUIRE(std::isfinite(gradient.at(i)));
  }

  TEST_CASE("gradients of both orders agree with differences: self, causal, cross, masked") {
    MultiHeadAttention self = whole_attention(sized(6, 3));
    const Tensor x = random_values({2, 4, 6}, 3);
    const auto check = [&](const std::string& name, const AttentionContext& masks) {
      check_gradients(name, gradcheck_module(
                                self, {{"x", x}}, [&] { return self(x, x, masks); }, second_order()));
    };
    AttentionContext masks;
    check("multi_head self", masks);
    masks.causal = true;
    check("multi_head causal", masks);
    masks.key_mask = real_tokens({2, 4}, 4);
    check("multi_head causal padded", masks);

    MultiHeadAttention cross = whole_attention(kWide);
    const Tensor query = random_values({2, 3, 6}, 3), memory = random_values({2, 5, 4}, 4);
    const Tensor bias = random_values({3, 3, 5}, 5);
    masks = {};
    masks.key_mask = real_tokens({3, 5}, 5);
    check_gradients("multi_head cross padded",
                    gradcheck_module(
                        cross, {{"query", query}, {"memory", memory}},
                        [&] { return cross(query, memory, masks); }, second_order()));
    masks.mask = bias;
    check_gradients("multi_head floating mask",
                    gradcheck_module(
                        cross, {{"query", query}, {"memory", memory}},
                        [&] { return cross(query, memory, masks); }, second_order()));
  }

  TEST_CASE("gradients agree with differences with dropout on the weights") {
    MultiHeadAttention attention = whole_attention(cross_of(wide(0.4), 6));
    const Tensor x = random_values({2, 4, 6}, 3);
    const Tensor dropped = attention(x, x);
    attention.eval();
    CHECK(absolute_error(dropped, attention(x, x)) > 0.01);
    attention.train();
    check_gradients("multi_head dropout",
                    gradcheck_module(
                        attention, {{"x", x}}, [&] { return attention(x, x); }, second_order()));
  }

  TEST_CASE(
      "outputs of another width than the input agree with plain loops, and the heads share that width") {
    for (const Index output_width : {3, 9}) {
      AttentionConfig config = sized(6, 3);
      config.memory_width = 4;
      config.output_width = output_width;
      MultiHeadAttention attention = whole_attention(config);
      std::string shapes;
      for (const auto& [name, parameter] : attention.named_parameters())
        shapes += name + " " + parameter.value().shape().text() + " ";
      const std::string O = std::to_string(output_width);
      CHECK(shapes == "query.weight [" + O + ",6] query.bias [" + O + "] key.weight [" + O +
                          ",4] key.bias [" + O + "] value.weight [" + O + ",4] value.bias [" + O +
                          "] output.weight [" + O + "," + O + "] output.bias [" + O + "] ");
      const Tensor query = random_values({2, 5, 6}, 3), memory = random_values({2, 8, 4}, 4);
      const Tensor y = attention(query, memory);
      CHECK(y.shape() == Shape{2, 5, output_width});
      CHECK_BELOW(relative_error(y, attention_oracle(attention, 3, query, memory, memory,
                                                     [](Index, Index, Index, Index) { return true; })),
                  1e-13);
    }
  }

  TEST_CASE("sequence-first inputs give what batch-first ones give, with axes swapped") {
    AttentionConfig config = layer_config("mha", [](auto& c) { c.packed = false; });
    const Tensor x = random_values({2, 5, 6}, 3), y = random_values({2, 4, 6}, 4);
    for (const bool packed : {false, true}) {
      config.packed = packed;
      config.sequence_first = false;
      MultiHeadAttention batch = whole_attention(config);
      config.sequence_first = true;
      MultiHeadAttention sequence = whole_attention(config);
      AttentionContext masks;
      masks.key_mask = real_tokens({4, 2}, 4);
      Tensor batch_weights, sequence_weights;
      AttentionContext batch_context = masks, sequence_context = masks;
      batch_context.weights = &batch_weights;
      sequence_context.weights = &sequence_weights;
      const Tensor expected = batch(x, y, batch_context);
      CHECK(same_bits(sequence_first(sequence(sequence_first(x), sequence_first(y), sequence_context)),
                      expected));
      CHECK(same_bits(batch_weights, sequence_weights));
      const Tensor t = sequence_first(x);
      CHECK(same_bits(sequence_first(sequence(t, t)), batch(x, x)));
    }
  }

  TEST_CASE("dropout on the output drops outputs in training, with a counter of its own") {
    AttentionConfig config = layer_config("mha", [](auto& c) { c.packed = false; });
    config.output_dropout = 0.5;
    MultiHeadAttention attention = whole_attention(config);
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

  TEST_CASE("grouped-query attention is multi-head attention whose key and value heads are repeated") {
    const Tensor x = random_values({2, 7, 12}, 3);
    for (const Index groups : {1, 2, 3, 6}) {
      for (const bool rotary : {false, true}) {
        CAPTURE(groups);
        CAPTURE(rotary);
        AttentionConfig config("gqa", 6);
        config.width = 12, config.groups = groups, config.key_width = 4, config.value_width = 3;
        config.rotary = rotary;
        MultiHeadAttention grouped = whole_attention(config);
        std::map<std::string, Tensor> p = parameters_of(grouped);
        config.kind = "mha", config.groups = 0, config.packed = false;
        Generator random(test_seed(1));
        MultiHeadAttention whole(config, random);
        for (auto& [name, parameter] : whole.named_parameters()) {
          const Tensor packed = p["query_key_value" + name.substr(name.find('.'))];
          if (name.find("query") == 0) parameter.set_value(slice(packed, 0, 0, 24));
          if (name.find("key") == 0) parameter.set_value(repeated_rows(packed, 24, groups, 4, 6 / groups));
          if (name.find("value") == 0)
            parameter.set_value(repeated_rows(packed, 24 + groups * 4, groups, 3, 6 / groups));
          if (name.find("output") == 0) parameter.set_value(p[name]);
        }
        CHECK_BELOW(relative_error(grouped(x, x), whole(x, x)), 1e-13);
        AttentionContext masks;
        masks.causal = true, masks.key_mask = real_tokens({4, 7}, 7);
        CHECK_BELOW(relative_error(grouped(x, x, masks), whole(x, x, masks)), 1e-13);
      }
    }
  }
}
