#include <tapeformer/nn/attention/latent.h>
#include <tapeformer/tests/nn/module_case.h>

#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

struct LatentVariant {
  const char* name;
  Index query_latent_width, rotary_width;
  bool norm;
  bool rotates = true;
  double score_scale = 0;
};
constexpr LatentVariant kLatentVariants[] = {{"direct", 0, 2, false},
                                             {"direct normed", 0, 4, true},
                                             {"low-rank queries", 5, 2, false},
                                             {"low-rank queries normed", 5, 4, true},
                                             {"no rotary part", 5, 0, true},
                                             {"shared keys without rotation", 5, 4, true, false},
                                             {"another scale", 0, 2, false, true, 0.9}};

AttentionConfig config_of(const LatentVariant& variant, LatentForm form = LatentForm::automatic) {
  AttentionConfig config;
  config.width = 8, config.heads = 3, config.key_width = 4, config.value_width = 5, config.latent_width = 6;
  config.query_latent_width = variant.query_latent_width, config.rotary_width = variant.rotary_width;
  config.kind = "mla";
  config.norm = variant.norm, config.form = form, config.shared_key_rotation = variant.rotates;
  config.score_scale = variant.score_scale;
  config.cross = variant.rotary_width == 0;
  return config;
}

LatentAttention latent_attention_of(const AttentionConfig& config) {
  return random_module<LatentAttention>(config);
}

}  // namespace

TEST_CASE("outputs and gradients are those of the paper's equations, in both forms") {
  const Golden golden("grouped_latent");
  for (const char* name : {"latent_direct", "latent_full", "latent_cross"}) {
    for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed}) {
      const auto given = golden.options(name);
      const auto size = [&](const char* key) { return given[key].get<Index>(); };
      AttentionConfig config("mla", size("heads"));
      config.width = 12, config.memory_width = size("memory_width");
      config.key_width = size("key_width"), config.value_width = size("value_width");
      config.latent_width = size("latent_width"), config.query_latent_width = size("query_latent_width");
      config.rotary_width = size("rotary_width"), config.cross = config.rotary_width == 0,
      config.norm = given["norm"].get<bool>(), config.form = form;
      auto attention = fresh_module<LatentAttention>(config);
      check_attention_against_golden(name, attention, config.memory_width == 0, "grouped_latent");
    }
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
      const auto check = [&](const Tensor& keys, const AttentionContext& context) {
        const auto of = [&](LatentAttention& layer) {
          NamedTensors inputs = {{"x", x}};
          if (keys.state() != x.state()) inputs.emplace_back("memory", keys);
          return output_and_gradients(layer, inputs, [&] { return layer(x, keys, context); });
        };
        check_near(of(absorbed), of(naive), 1e-11);
      };
      AttentionContext context = causal_context();
      context.key_mask = real_tokens({6, 4}, 6);
      check(x, context);
      context.positions = ids_of({3, 4, 5, 6, 7, 8, 0, 0, 1, 2, 3, 4}, {2, 6});
      check(x, context);
      if (variant.rotary_width > 0) continue;
      context = {};
      context.key_mask = real_tokens({5, 7}, 7);
      check(memory, context);
    }
  }
}

TEST_CASE("sizes that do not fit are refused by name, and projections start Xavier uniform") {
  AttentionConfig config("mla", 4);
  config.width = 64, config.rotary_width = 3;
  CHECK(message_of<Error>([&] { config.check(); }) ==
        "[attention] rotary_width must be even; got attention=mla, rotary_width=3");
  config.rotary_width = 8, config.memory_width = 32;
  CHECK(
      message_of<Error>([&] { config.check(); }) ==
      "[attention] rotary keys are of the queries' tokens; got attention=mla, width=64, memory_width=32; try "
      "cross=true");
  const LatentAttention attention = latent_attention_of(config_of(kLatentVariants[0]));
  const Tensor x = random_values({1, 4, 8}, 3);
  CHECK(message_of<Error>([&] { attention(x, x.clone()); }) ==
        "[latent] rotary positions are for self-attention; got a memory that is not the query; try "
        "cross=true");

  config.memory_width = 0;
  auto fresh = fresh_module<LatentAttention>(config);
  for (const auto& [name, parameter] : fresh.named_parameters()) {
    if (parameter.value().rank() > 1) check_xavier_uniform(parameter);
  }
}
