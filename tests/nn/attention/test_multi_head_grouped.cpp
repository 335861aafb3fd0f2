#include <tapeformer/tests/nn/attention/multi_head_case.h>
#include <tapeformer/tests/reference/gradcheck_table.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

AttentionConfig grouped_config(Index heads, Index groups, bool rotary = true, bool cross = false) {
  AttentionConfig config;
  config.kind = "gqa";
  config.width = 12, config.heads = heads, config.groups = groups;
  config.key_width = 4, config.value_width = 3;
  config.rotary = rotary, config.cross = cross;
  return config;
}

MultiHeadAttention attention_of(const AttentionConfig& config) {
  return random_module<MultiHeadAttention>(config);
}

/// Rows of `count` heads from row `from` on, each head `repeats` times.
Tensor repeated_rows(const Tensor& packed, Index from, Index count, Index width, Index repeats) {
  TensorList heads;
  for (Index head = 0; head < count * repeats; ++head)
    heads.push_back(slice(packed, 0, from + head / repeats * width, width));
  return concat(heads, 0);
}

AttentionContext causal_padded(const std::vector<Index>& lengths, Index longest) {
  AttentionContext context;
  context.causal = true;
  context.key_mask = real_tokens(lengths, longest);
  return context;
}

}  // namespace

TEST_SUITE("nn/attention/multi_head grouped") {
  TEST_CASE("it is multi-head attention whose key and value heads are repeated") {
    const Tensor x = random_values({2, 7, 12}, 3);
    for (const Index groups : {1, 2, 3, 6}) {
      for (const bool rotary : {false, true}) {
        CAPTURE(groups);
        CAPTURE(rotary);
        MultiHeadAttention grouped = attention_of(grouped_config(6, groups, rotary));
        std::map<std::string, Tensor> p = parameters_of(grouped);
        AttentionConfig config;
        config.width = 12, config.heads = 6, config.key_width = 4, config.value_width = 3;
        config.rotary = rotary, config.packed = false;
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
        const AttentionContext masks = causal_padded({4, 7}, 7);
        CHECK_BELOW(relative_error(grouped(x, x, masks), whole(x, x, masks)), 1e-13);
      }
    }
  }

  TEST_CASE("gradients of both orders agree with differences: grouped, multi-query, cross, dropout") {
    const Tensor x = random_values({2, 4, 12}, 3), memory = random_values({2, 5, 7}, 4);
    const AttentionContext masks = causal_padded({2, 4}, 4);
    const auto check = [&](const std::string& name, AttentionConfig config) {
      config.key_width = config.value_width = 2;
      MultiHeadAttention attention = attention_of(config);
      check_gradients(name,
                      gradcheck_module(
                          attention, {{"x", x}}, [&] { return attention(x, x, masks); }, second_order()));
    };
    check("grouped_query causal padded", grouped_config(4, 2));
    check("multi_query causal padded", grouped_config(2, 1));
    AttentionConfig dropping = grouped_config(4, 2);
    dropping.dropout = 0.4;
    check("grouped_query dropout", dropping);

    AttentionConfig crossing = grouped_config(4, 2, false, true);
    crossing.memory_width = 7;
    MultiHeadAttention cross = attention_of(crossing);
    AttentionContext padding;
    padding.key_mask = real_tokens({3, 5}, 5);
    check_gradients("grouped_query cross padded",
                    gradcheck_module(
                        cross, {{"x", x}, {"memory", memory}}, [&] { return cross(x, memory, padding); },
                        second_order()));
  }
}
