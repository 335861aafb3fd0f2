#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/gradcheck_table.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

using namespace tapeformer;

namespace {

AttentionConfig config_of(Index heads, Index groups, bool rotary = true, bool cross = false) {
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
        MultiHeadAttention grouped = attention_of(config_of(6, groups, rotary));
        std::map<std::string, Tensor> p;
        for (const auto& [name, parameter] : grouped.named_parameters()) p[name] = parameter.value();
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

  TEST_CASE("outputs and gradients are PyTorch's, and those of transformers' Llama layer") {
    const Golden golden("grouped_latent");
    using In = std::map<std::string, Tensor>;
    for (const char* name : {"grouped_self", "multi_query_self", "grouped_plain", "grouped_cross"}) {
      const auto given = golden.options(name);
      AttentionConfig config = config_of(given["heads"].get<Index>(), given["groups"].get<Index>(), false);
      config.cross = std::string(name) == "grouped_cross";
      config.bias = !config.cross;
      if (config.cross) {
        config.key_width = config.value_width = 4, config.memory_width = 9;
      } else {
        config.key_width = given["key_width"].get<Index>(),
        config.value_width = given["value_width"].get<Index>();
        config.rotary = given["rotary"].get<bool>();
      }
      Generator random(test_seed(1));
      MultiHeadAttention attention(config, random);
      check_layer_against_golden(
          name, attention,
          [&](const In& in) {
            AttentionContext context;
            context.causal = !config.cross;
            context.key_mask = in.at(config.cross ? "memory_may_attend" : "may_attend");
            return attention(in.at("x"), in.at(config.cross ? "memory" : "x"), context);
          },
          "grouped_latent");
    }

    AttentionConfig llama;
    llama.kind = "gqa";
    llama.width = 24, llama.heads = 6, llama.groups = 2, llama.rotary = true;
    llama.rotations.base = 500, llama.rotations.layout = RotaryLayout::half_split;
    llama.rotations.factor = 8, llama.rotations.original_context = 64;
    Generator random(test_seed(1));
    MultiHeadAttention attention(llama, random);
    check_layer_against_golden(
        "grouped_llama", attention,
        [&](const In& in) {
          AttentionContext context;
          context.causal = true;
          context.positions = in.at("positions");
          return attention(in.at("x"), in.at("x"), context);
        },
        "grouped_latent");
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
    check("grouped_query causal padded", config_of(4, 2));
    check("multi_query causal padded", config_of(2, 1));
    AttentionConfig dropping = config_of(4, 2);
    dropping.dropout = 0.4;
    check("grouped_query dropout", dropping);

    AttentionConfig crossing = config_of(4, 2, false, true);
    crossing.memory_width = 7;
    MultiHeadAttention cross = attention_of(crossing);
    AttentionContext padding;
    padding.key_mask = real_tokens({3, 5}, 5);
    check_gradients("grouped_query cross padded",
                    gradcheck_module(
                        cross, {{"x", x}, {"memory", memory}}, [&] { return cross(x, memory, padding); },
                        second_order()));
  }

  TEST_CASE("decoding with a cache, token by token or in pieces, gives what decoding without gives") {
    const bool on_gpu = default_device().is_cuda();  // an emulated one takes a second for twenty tokens
    const Index T = on_gpu ? 140 : 208;              // more than the 128 keys that have a kernel of their own
    AttentionContext causal;
    causal.causal = true;
    for (const DType type : {DType::f64, DType::f32}) {
      const Tensor x = random_values({2, T, 12}, 3, type);
      for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
        for (const Index groups : {1, 3}) {
          if (on_gpu && groups == 1) continue;
          MultiHeadAttention attention = attention_of(config_of(6, groups));
          attention.to(type);
          CacheConfig config;
          config.kind = kind, config.block_size = 8;
          const auto cache = make_cache(config, attention.cache_widths());
          AttentionContext context = causal;
          context.cache = cache.get();
          TensorList pieces;
          for (Index from = 0; from < T;) {
            const Index some = from == 0 ? 5 : from == 9 ? 3 : 1;
            const Tensor piece = slice(x, 1, from, some);
            pieces.push_back(attention(piece, piece, context));
            from += some;
          }
          CHECK_BELOW(relative_error(concat(pieces, 1), attention(x, x, causal)),
                      type == DType::f64 ? 1e-13 : 1e-5);
          CHECK(cache->length() == T);
          CHECK(cache->bytes() == 2 * T * groups * (4 + 3) * bytes_of(type));
        }
      }
    }
  }

  TEST_CASE("cross-attention keeps the memory in its cache and never looks at it again") {
    const MultiHeadAttention attention = attention_of(config_of(6, 2, false, true));
    const Tensor x = random_values({2, 6, 12}, 3), memory = random_values({2, 5, 12}, 4);
    AttentionContext context;
    context.key_mask = real_tokens({3, 5}, 5);
    const Tensor whole = attention(x, memory, context);
    const auto cache = make_cache({}, attention.cache_widths());
    context.cache = cache.get();
    CHECK_BELOW(relative_error(attention(slice(x, 1, 0, 2), memory, context), slice(whole, 1, 0, 2)), 1e-13);
    CHECK_BELOW(relative_error(attention(slice(x, 1, 2, 4), {}, context), slice(whole, 1, 2, 4)), 1e-13);
  }

  TEST_CASE("another memory, or keys and values of different inputs, take their rows of a shared matrix") {
    const Tensor x = random_values({2, 5, 12}, 3), memory = random_values({2, 7, 12}, 4);
    for (const Index groups : {1, 2}) {
      const MultiHeadAttention self = attention_of(config_of(6, groups, false)),
                               cross = attention_of(config_of(6, groups, false, true));
      CHECK_BELOW(relative_error(self(x, x.clone()), self(x, x)), 1e-13);
      CHECK_BELOW(relative_error(cross(x, memory, memory.clone(), {}), cross(x, memory)), 1e-13);
    }
  }

  TEST_CASE("positions: only distances matter, padding on the left may shift them, the limit is stated") {
    AttentionConfig config = config_of(6, 2);
    config.rotations.max_positions = 110;
    const MultiHeadAttention attention = attention_of(config);
    const Tensor x = random_values({1, 4, 12}, 3);
    AttentionContext context;
    context.causal = true;
    const Tensor y = attention(x, x, context);
    context.positions = ids_of({100, 101, 102, 103}, {4});
    CHECK_BELOW(relative_error(attention(x, x, context), y), 1e-12);
    context.positions = ids_of({0, 2, 4, 6}, {4});
    CHECK(relative_error(attention(x, x, context), y) > 1e-3);

    const Tensor padded = concat({random_values({1, 2, 12}, 5), x}, 1);
    context.positions = ids_of({0, 0, 0, 1, 2, 3}, {1, 6});
    context.key_mask = Tensor::full({1, 6}, 1, DType::boolean);
    std::fill_n(context.key_mask.data<bool>(), 2, false);
    CHECK_BELOW(relative_error(slice(attention(padded, padded, context), 1, 2, 4), y), 1e-12);

    context.positions = ids_of({107, 108, 109, 110, 111, 112}, {6});
    CHECK(message_of<ShapeError>([&] {
            attention(padded, padded, context);
          }).find("positions must be below max_positions=110; got 110") != std::string::npos);
  }

  TEST_CASE("what does not fit is refused by name") {
    Generator random(test_seed(1));
    CHECK(message_of<Error>([&] { MultiHeadAttention(config_of(6, 4), random); }) ==
          "[attention] heads must be a multiple of groups; got attention=gqa, heads=6, groups=4");
    AttentionConfig config = config_of(5, 1);
    config.value_width = 0;
    CHECK(message_of<Error>([&] { MultiHeadAttention(config, random); }) ==
          "[attention] width must be divisible by heads; got attention=gqa, width=12, heads=5; try a width "
          "that is a "
          "multiple "
          "of the heads");
    config = config_of(6, 2);
    config.memory_width = 5;
    CHECK(message_of<Error>([&] { MultiHeadAttention(config, random); }) ==
          "[attention] a packed projection needs inputs of one width; got attention=gqa, width=12, "
          "memory_width=5, value_memory_width=5; try cross=true");
    const MultiHeadAttention attention = attention_of(config_of(6, 2));
    const Tensor x = random_values({1, 4, 12}, 3);
    CHECK(message_of<Error>([&] { attention(x, x.clone()); }) ==
          "[multi_head] rotary positions are for self-attention; got a memory that is not the query");
  }

  TEST_CASE("projections start Xavier uniform, each on its own, with zero biases") {
    Generator random(test_seed(1));
    AttentionConfig config;
    config.kind = "gqa";
    config.width = 64, config.heads = 8, config.groups = 2;
    MultiHeadAttention attention(config, random);
    CHECK(attention.parameter_count() == (64 + 32) * 65 + 64 * 65);
    for (const auto& [name, parameter] : attention.named_parameters()) {
      const Tensor x = parameter;
      if (name.find("bias") != std::string::npos) CHECK(absolute_error(x, Tensor::zeros(x.shape())) == 0);
      if (name != "query_key_value.weight") continue;
      for (const auto& [from, rows] : {std::pair<Index, Index>{0, 64}, {64, 16}, {80, 16}}) {
        const double bound = std::sqrt(6.0 / static_cast<double>(64 + rows));
        double largest = 0;
        for (Index i = from * 64; i < (from + rows) * 64; ++i)
          largest = std::max(largest, std::fabs(x.at(i)));
        CHECK(largest <= bound);
        CHECK(largest > 0.99 * bound);
      }
    }
  }
}
