#pragma once

#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/latent.h>
#include <tapeformer/tests/nn/module_case.h>

namespace tapeformer {

struct LatentVariant {
  const char* name;
  Index query_latent_width, rotary_width;
  bool norm;
};
constexpr LatentVariant kLatentVariants[] = {{"direct", 0, 2, false},
                                             {"direct normed", 0, 4, true},
                                             {"low-rank queries", 5, 2, false},
                                             {"low-rank queries normed", 5, 4, true},
                                             {"no rotary part", 5, 0, true}};

inline AttentionConfig config_of(const LatentVariant& variant, LatentForm form = LatentForm::automatic) {
  AttentionConfig config;
  config.width = 8, config.heads = 3, config.key_width = 4, config.value_width = 5, config.latent_width = 6;
  config.query_latent_width = variant.query_latent_width, config.rotary_width = variant.rotary_width;
  config.kind = "mla";
  config.norm = variant.norm, config.form = form;
  config.cross = variant.rotary_width == 0;
  return config;
}

inline LatentAttention latent_attention_of(const AttentionConfig& config) {
  return random_module<LatentAttention>(config);
}

inline AttentionContext causal() {
  AttentionContext context;
  context.causal = true;
  return context;
}

/// The output, and the gradients of x, of the memory if there is one, and of all parameters.
struct Everything {
  Tensor y;
  std::vector<std::pair<std::string, Tensor>> gradients;
};

inline Everything everything(LatentAttention& attention, const Tensor& x, const Tensor& memory,
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

inline void check_same(const Everything& a, const Everything& b) {
  CHECK_BELOW(relative_error(a.y, b.y), 1e-11);
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    INFO(a.gradients[i].first);
    CHECK_BELOW(relative_error(a.gradients[i].second, b.gradients[i].second), 1e-11);
  }
}

}  // namespace tapeformer
