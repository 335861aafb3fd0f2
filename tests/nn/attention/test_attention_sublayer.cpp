#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/attention_sublayer.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

namespace {

/// An attention, and a sublayer around an attention with the same parameters.
std::pair<std::unique_ptr<Attention>, AttentionSublayer> both_of(Index memory_width, double dropout) {
  AttentionConfig config("mha", 3);
  config.width = 6, config.memory_width = memory_width, config.cross = memory_width > 0;
  Generator random(test_seed(1));
  auto attention = make_attention(config, random);
  AttentionSublayer sublayer(make_attention(config, random), {6, dropout, 1e-5}, random);
  attention->to(DType::f64);
  sublayer.to(DType::f64);
  randomise(sublayer, 2);
  std::map<std::string, Tensor> p = parameters_of(sublayer);
  for (auto& [name, parameter] : attention->named_parameters()) parameter.set_value(p["attention." + name]);
  return {std::move(attention), std::move(sublayer)};
}

}  // namespace

TEST_CASE("it is norm(x + attention(x)), for self- and for cross-attention, under the context's masks") {
  const Tensor x = random_values({2, 5, 6}, 3), other = random_values({2, 4, 7}, 4);
  const AttentionContext context = causal_context();
  for (const bool is_self : {true, false}) {
    auto [attention, sublayer] = both_of(is_self ? 0 : 7, 0);
    const Tensor memory = is_self ? x : other;
    const auto parameters = sublayer.named_parameters();
    const Tensor weight = parameters[parameters.size() - 2].second, bias = parameters.back().second;
    CHECK(same_bits(sublayer(x, memory, context),
                    layer_norm(x + (*attention)(x, memory, context), weight, bias, 1e-5)));
  }
}

TEST_CASE("dropout acts on what the attention adds, in training only") {
  AttentionSublayer dropping = both_of(0, 0.5).second, whole = both_of(0, 0).second;
  const Tensor x = random_values({2, 5, 6}, 3);
  CHECK(relative_error(dropping(x, x), whole(x, x)) > 0.01);
  dropping.eval();
  CHECK(same_bits(dropping(x, x), whole(x, x)));
}
