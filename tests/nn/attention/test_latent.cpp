#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/nn/attention/latent.h>
#include <tapeformer/tests/nn/module_case.h>

#include <nlohmann/json.hpp>

#include <cmath>

using namespace tapeformer;

namespace {

struct LatentVariant {
  const char* name;
  Index query_latent_width, rotary_width;
  bool norm;
  bool rotates = true;
};
constexpr LatentVariant kLatentVariants[] = {
    {"direct", 0, 2, false},           {"direct normed", 0, 4, true},
    {"low-rank queries", 5, 2, false}, {"low-rank queries normed", 5, 4, true},
    {"no rotary part", 5, 0, true},    {"shared keys without rotation", 5, 4, true, false}};

AttentionConfig config_of(const LatentVariant& variant, LatentForm form = LatentForm::automatic) {
  AttentionConfig config;
  config.width = 8, config.heads = 3, config.key_width = 4, config.value_width = 5, config.latent_width = 6;
  config.query_latent_width = variant.query_latent_width, config.rotary_width = variant.rotary_width;
  config.kind = "mla";
  config.norm = variant.norm, config.form = form, config.shared_key_rotation = variant.rotates;
  config.cross = variant.rotary_width == 0;
  return config;
}

LatentAttention latent_attention_of(const AttentionConfig& config) {
  return random_module<LatentAttention>(config);
}

/// The output, and the gradients of x, of the memory if there is one, and of all parameters.
struct Everything {
  Tensor y;
  std::vector<std::pair<std::string, Tensor>> gradients;
};

Everything everything(LatentAttention& attention, const Tensor& x, const Tensor& memory,
                      const AttentionContext& context) {
  rewind(attention);
  Tape tape;
  std::vector<Tensor> of{x};
  Everything result;
  result.gradients.emplace_back("x", Tensor());
  if (memory.defined()) {
    of.push_back(memory);
    result.gradients.emplace_back("memory", Tensor());
  }
  for (const Tensor& leaf : of) tape.watch(leaf);
  for (const auto& [name, parameter] : attention.named_parameters()) {
    of.push_back(parameter);
    result.gradients.emplace_back(name, Tensor());
  }
  result.y = attention(x, memory.defined() ? memory : x, context);
  const auto gradients = tape.gradients(result.y, of, random_values(result.y.shape(), 9));
  for (std::size_t i = 0; i < gradients.size(); ++i) result.gradients[i].second = gradients[i];
  return result;
}

void check_same(const Everything& a, const Everything& b) {
  CHECK_BELOW(relative_error(a.y, b.y), 1e-11);
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    INFO(a.gradients[i].first);
    CHECK_BELOW(relative_error(a.gradients[i].second, b.gradients[i].second), 1e-11);
  }
}

}  // namespace

TEST_CASE("shared keys without rotation are those of tokens that are all at position 0") {
  AttentionConfig config = config_of({"", 5, 4, true});
  AttentionContext at_zero;
  at_zero.causal = true, at_zero.positions = Tensor::zeros({6}, DType::i32);
  for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed}) {
    config.form = form, config.shared_key_rotation = true;
    LatentAttention rotated = latent_attention_of(config);
    config.shared_key_rotation = false;
    config.add_positions(PositionKind::none);
    LatentAttention plain = latent_attention_of(config);
    const Tensor x = random_values({2, 6, 8}, 3);
    AttentionContext causal;
    causal.causal = true;
    CHECK(same_bits(plain(x, x, causal), rotated(x, x, at_zero)));
    CHECK_FALSE(same_bits(plain(x, x, causal), rotated(x, x, causal)));
  }
}

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
      config.norm = given["norm"].get<bool>();
      config.form = form;
      Generator random(test_seed(1));
      LatentAttention attention(config, random);
      check_attention_against_golden(name, attention, config.memory_width == 0, "grouped_latent");
    }
  }
}

TEST_CASE("scores have the requested scale, in both forms") {
  const Tensor x = random_values({2, 6, 8}, 3);
  for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed}) {
    AttentionConfig config = config_of(kLatentVariants[0], form);
    const Tensor usual = latent_attention_of(config)(x, x, causal_context());
    config.score_scale = 1 / std::sqrt(6.0);
    CHECK(same_bits(latent_attention_of(config)(x, x, causal_context()), usual));
    config.score_scale *= 2;  // as with queries of twice the length
    LatentAttention sharper = latent_attention_of(config);
    const Tensor got = sharper(x, x, causal_context());
    config.score_scale = 0;
    LatentAttention longer = latent_attention_of(config);
    for (auto& [name, parameter] : longer.named_parameters())
      if (name.find("query") == 0) parameter.set_value(parameter.value() * 2.0);
    CHECK_BELOW(relative_error(got, longer(x, x, causal_context())), 1e-13);
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
      AttentionContext context = causal_context();
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

TEST_CASE("both forms hand out the same weights") {
  const Tensor x = random_values({2, 6, 8}, 3);
  Tensor weights[2];
  for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed}) {
    AttentionContext context = causal_context();
    context.weights = &weights[form == LatentForm::absorbed];
    latent_attention_of(config_of(kLatentVariants[3], form))(x, x, context);
  }
  CHECK(weights[0].shape() == Shape{2, 3, 6, 6});
  CHECK_BELOW(relative_error(weights[1], weights[0]), 1e-11);
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
  Generator random(test_seed(1));
  LatentAttention fresh(config, random);
  for (const auto& [name, parameter] : fresh.named_parameters()) {
    if (parameter.value().rank() > 1) check_xavier_uniform(parameter);
  }
}
