#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/nn/attention/latent_case.h>
#include <tapeformer/tests/reference/gradcheck_table.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

TEST_SUITE("nn/attention/latent") {
  TEST_CASE("outputs and gradients are those of the paper's equations, in both forms") {
    const Golden golden("grouped_latent");
    for (const char* name : {"latent_direct", "latent_full", "latent_cross"}) {
      for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed}) {
        const auto given = golden.options(name);
        const auto size = [&](const char* key) { return given[key].get<Index>(); };
        AttentionConfig config;
        config.width = 12, config.heads = size("heads"), config.memory_width = size("memory_width");
        config.key_width = size("key_width"), config.value_width = size("value_width");
        config.latent_width = size("latent_width"), config.query_latent_width = size("query_latent_width");
        config.rotary_width = size("rotary_width"), config.cross = config.rotary_width == 0,
        config.norm = given["norm"].get<bool>();
        config.form = form;
        Generator random(test_seed(1));
        LatentAttention attention(config, random);
        check_layer_against_golden(
            name, attention,
            [&](const std::map<std::string, Tensor>& in) {
              AttentionContext context;
              context.causal = config.memory_width == 0;
              context.key_mask = in.at("may_attend");
              return attention(in.at("x"), in.at(config.memory_width > 0 ? "memory" : "x"), context);
            },
            "grouped_latent");
      }
    }
  }

  TEST_CASE("scores have the scale that is asked for, in both forms") {
    const Tensor x = random_values({2, 6, 8}, 3);
    for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed}) {
      AttentionConfig config = config_of(kLatentVariants[0], form);
      const Tensor usual = latent_attention_of(config)(x, x, causal());
      config.score_scale = 1 / std::sqrt(6.0);
      CHECK(same_bits(latent_attention_of(config)(x, x, causal()), usual));
      config.score_scale *= 2;  // as with queries of twice the length
      LatentAttention sharper = latent_attention_of(config);
      const Tensor got = sharper(x, x, causal());
      config.score_scale = 0;
      LatentAttention longer = latent_attention_of(config);
      for (auto& [name, parameter] : longer.named_parameters())
        if (name.find("query") == 0) parameter.set_value(parameter.value() * 2.0);
      CHECK_BELOW(relative_error(got, longer(x, x, causal())), 1e-13);
      CHECK(relative_error(got, usual) > 1e-3);
    }
  }

  TEST_CASE("the absorbed form has the naive form's outputs and gradients: masks, dropout, another memory") {
    const Tensor x = random_values({2, 6, 8}, 3), memory = random_values({2, 7, 8}, 4);
    for (const LatentVariant& variant : kLatentVariants) {
      CAPTURE(variant.name);
      for (const double dropout : {0.0, 0.3}) {
        AttentionConfig config = config_of(variant, LatentForm::naive);
        config.dropout = dropout;
        LatentAttention naive = latent_attention_of(config);
        config.form = LatentForm::absorbed;
        LatentAttention absorbed = latent_attention_of(config);
        AttentionContext context = causal();
        context.key_mask = real_tokens({6, 4}, 6);
        check_same(everything(absorbed, x, {}, context), everything(naive, x, {}, context));
        context.positions = ids_of({3, 4, 5, 6, 7, 8, 0, 0, 1, 2, 3, 4}, {2, 6});
        check_same(everything(absorbed, x, {}, context), everything(naive, x, {}, context));
        if (variant.rotary_width > 0) continue;
        context = {};
        context.key_mask = real_tokens({5, 7}, 7);
        check_same(everything(absorbed, x, memory, context), everything(naive, x, memory, context));
      }
    }
  }

  TEST_CASE(
      "products multiplied out beforehand change nothing but the order, and the layer keeps none of them") {
    const Tensor x = random_values({2, 10, 8}, 3);
    for (const LatentVariant& variant : kLatentVariants) {
      CAPTURE(variant.name);
      LatentAttention attention = latent_attention_of(config_of(variant, LatentForm::absorbed));
      const Tensor y = attention(x, x, causal());
      const LatentProducts products = attention.products();
      CHECK_BELOW(relative_error(attention(x, x, causal(), products), y), 1e-12);
      const auto cache = make_cache({}, attention.cache_widths());
      AttentionContext context = causal();
      context.cache = cache.get();
      for (Index t = 0; t < 10; ++t) {
        const Tensor piece = slice(x, 1, t, 1);
        CHECK_BELOW(relative_error(attention(piece, piece, context, products), slice(y, 1, t, 1)), 1e-11);
      }

      Tape tape;  // what is recorded reaches the weights themselves
      Parameter up = attention.named_parameters().back().second;
      for (const auto& [name, parameter] : attention.named_parameters())
        if (name == "value_up.weight") up = parameter;
      tape.watch(x);
      const Tensor recorded = attention(x, x, causal(), products);
      CHECK(same_bits(recorded, y));
      tape.backward(recorded, random_values(y.shape(), 9));
      CHECK(up.gradient().defined());

      const NoGradGuard pause;
      up.value().data<double>()[0] += 1;  // as an optimizer does, unseen by the layer
      const Tensor changed = attention(x, x, causal());
      CHECK(relative_error(changed, y) > 1e-3);
      CHECK_BELOW(relative_error(attention(x, x, causal(), attention.products()), changed), 1e-12);
      CHECK_BELOW(relative_error(attention(x, x, causal(), products), y),
                  1e-12);  // the old ones are what is used
    }
  }

  TEST_CASE("gradients of both orders agree with differences, in both forms") {
    const Tensor x = random_values({2, 4, 8}, 3), memory = random_values({2, 5, 7}, 4);
    AttentionContext context = causal();
    context.key_mask = real_tokens({2, 4}, 4);
    for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed}) {
      const std::string suffix = form == LatentForm::naive ? " naive" : " absorbed";
      for (const LatentVariant& variant : {kLatentVariants[0], kLatentVariants[3]}) {
        LatentAttention attention = latent_attention_of(config_of(variant, form));
        check_gradients(std::string("latent ") + variant.name + suffix,
                        gradcheck_module(
                            attention, {{"x", x}}, [&] { return attention(x, x, context); }, second_order()));
      }
      AttentionConfig config = config_of(kLatentVariants[4], form);
      config.memory_width = 7, config.dropout = 0.4;
      LatentAttention cross = latent_attention_of(config);
      AttentionContext padding;
      padding.key_mask = real_tokens({3, 5}, 5);
      check_gradients("latent cross dropout" + suffix,
                      gradcheck_module(
                          cross, {{"x", x}, {"memory", memory}}, [&] { return cross(x, memory, padding); },
                          second_order()));
    }
  }

  TEST_CASE("both forms hand out the same weights, and padding may hold anything") {
    const Tensor x = random_values({2, 6, 8}, 3);
    Tensor weights[2];
    for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed}) {
      const LatentAttention attention = latent_attention_of(config_of(kLatentVariants[3], form));
      AttentionContext context = causal();
      context.key_mask = real_tokens({6, 4}, 6);
      const Tensor y = attention(x, x, context), dirty = x.clone();
      std::fill_n(dirty.data<double>() + (6 + 4) * 8, 2 * 8, std::numeric_limits<double>::quiet_NaN());
      const Tensor z = attention(dirty, dirty, context);
      CHECK_BELOW(relative_error(slice(z, 0, 0, 1), slice(y, 0, 0, 1)), 1e-13);
      CHECK_BELOW(relative_error(slice(slice(z, 0, 1, 1), 1, 0, 4), slice(slice(y, 0, 1, 1), 1, 0, 4)),
                  1e-13);
      context.weights = &weights[form == LatentForm::absorbed];
      attention(x, x, context);
    }
    CHECK(weights[0].shape() == Shape{2, 3, 6, 6});
    CHECK_BELOW(relative_error(weights[1], weights[0]), 1e-11);
  }

  TEST_CASE("what does not fit is refused by name, and projections start Xavier uniform") {
    Generator random(test_seed(1));
    AttentionConfig config;
    config.width = 10, config.heads = 3;
    CHECK(message_of<Error>([&] { LatentAttention(config, random); }) ==
          "[attention] width must be divisible by heads; got attention=mla, width=10, heads=3; try a width "
          "that is a multiple "
          "of the heads");
    config.heads = 2, config.rotary_width = 3;
    CHECK(message_of<Error>([&] { LatentAttention(config, random); }) ==
          "[attention] rotary_width must be even; got attention=mla, rotary_width=3");
    const auto refused = [&](Index AttentionConfig::*size) {
      AttentionConfig wrong;
      wrong.width = 10, wrong.*size = -2;
      return message_of<Error>([&] { LatentAttention(wrong, random); });
    };
    const std::string least = " must be from 0 to 2147483647; got -2";
    CHECK(refused(&AttentionConfig::latent_width) == "[attention] latent_width" + least);
    CHECK(refused(&AttentionConfig::rotary_width) == "[attention] rotary_width" + least);
    CHECK(refused(&AttentionConfig::query_latent_width) == "[attention] query_latent_width" + least);
    CHECK(refused(&AttentionConfig::memory_width) == "[attention] memory_width" + least);
    CHECK(refused(&AttentionConfig::key_width) == "[attention] key_width" + least);
    const LatentAttention attention = latent_attention_of(config_of(kLatentVariants[0]));
    const Tensor x = random_values({1, 4, 8}, 3);
    CHECK(message_of<Error>([&] { attention(x, x.clone()); }) ==
          "[latent] rotary positions are for self-attention; got a memory that is not the query; try "
          "cross=true");

    config.width = 64, config.heads = 4, config.rotary_width = 8;
    LatentAttention fresh(config, random);
    CHECK(fresh.parameter_count() == 64 * 64 + 64 * 32 + 32 + 64 * 32 + 64 * 32 + 64 * 32 + 64 * 8 + 64 * 64);
    for (const auto& [name, parameter] : fresh.named_parameters()) {
      const Tensor weight = parameter;
      if (weight.rank() == 1) continue;
      double largest = 0;
      for (Index i = 0; i < weight.elements(); ++i) largest = std::max(largest, std::fabs(weight.at(i)));
      const double bound = std::sqrt(6.0 / static_cast<double>(weight.size(0) + weight.size(1)));
      CHECK(largest <= bound);
      CHECK(largest > 0.97 * bound);
    }
  }

  TEST_CASE("gradients of queries that meet a memory in the cache are the same in both forms") {
    const Tensor x = random_values({2, 4, 8}, 3), memory = random_values({2, 7, 8}, 4);
    std::vector<Everything> results;
    for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed}) {
      LatentAttention attention = latent_attention_of(config_of(kLatentVariants[4], form));
      const auto cache = make_cache({}, attention.cache_widths());
      AttentionContext context;
      context.cache = cache.get();
      attention(x, memory, context);
      results.push_back(everything(attention, x, memory, context));
    }
    check_same(results[1], results[0]);
    for (const auto& [path, gradient] : results[0].gradients) {
      const std::string& name = path;
      INFO(name);
      const bool is_cached =
          name == "memory" || name.find("key_value") == 0;  // what is held gets no gradient
      CHECK((absolute_error(gradient, Tensor::zeros(gradient.shape(), DType::f64)) > 1e-3) == !is_cached);
    }
  }

  TEST_CASE("the cache holds d_c + d_R numbers a token, as the formula says") {
    for (const DType type : {DType::f64, DType::f32}) {
      for (const LatentVariant& variant : kLatentVariants) {
        LatentAttention attention = latent_attention_of(config_of(variant));
        attention.to(type);
        const auto cache = make_cache({}, attention.cache_widths());
        const Tensor x = random_values({2, 5, 8}, 3, type);
        AttentionContext context = causal();
        context.cache = cache.get();
        attention(x, x, context);
        CHECK(attention.cache_widths().key == 6 + variant.rotary_width);
        CHECK(attention.cache_widths().value == 0);
        CHECK(cache->bytes() == 2 * 5 * (6 + variant.rotary_width) * bytes_of(type));
      }
    }
  }
}
