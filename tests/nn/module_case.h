#pragma once

#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/transformer/transformer_layer.h>
#include <tapeformer/tests/reference/golden.h>
#include <tapeformer/tests/reference/sanitized.h>
#include <tapeformer/tests/reference/support.h>
#include <tapeformer/tests/reference/threads.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tapeformer {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// The number of tokens for tests of caches; fewer in an emulated GPU, which takes a second for twenty, and
/// under the sanitizers.
inline Index cached_tokens() { return default_device().is_cuda() ? 40 : is_sanitized() ? 72 : 200; }

/// Standard normal values, in f32 those of f64 rounded.
inline Tensor random_values(const Shape& shape, std::uint64_t seed, DType type = DType::f64) {
  Generator random(test_seed(seed));
  return random_normal(shape, random, type);
}

inline Tensor ids_of(const std::vector<std::int32_t>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

/// Tokens below `vocabulary`.
inline Tensor random_ids(const Shape& shape, Index vocabulary, std::uint64_t seed) {
  Generator random(test_seed(seed));
  return random_ids(shape, vocabulary, random);
}

/// bool [B, longest]: true for the first lengths[b].
Tensor real_tokens(const std::vector<Index>& lengths, Index longest);

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

/// Every parameter random, biases and gains too, so that none hides behind a zero or a one.
void randomise(Module& module, std::uint64_t seed);

/// A module as it is made.
template <class Layer, class Config, class... Rest>
Layer fresh_module(const Config& config, const Rest&... rest) {
  Generator random(test_seed(1));
  return Layer(config, random, rest...);
}

/// A module in double whose parameters are all random.
template <class Layer, class Config, class... Rest>
Layer random_module(const Config& config, const Rest&... rest) {
  Layer layer = fresh_module<Layer>(config, rest...);
  layer.to(DType::f64);
  randomise(layer, 2);
  return layer;
}

/// Many values of a weight of this shape have a Xavier uniform distribution.
inline void check_xavier_uniform(const Tensor& weight) {
  const double bound = std::sqrt(6.0 / static_cast<double>(weight.size(0) + weight.size(1)));
  const double largest = absolute_error(weight, Tensor::zeros(weight.shape()));
  CHECK(largest <= bound);
  CHECK(largest > 0.9 * bound);
}

/// The parameter of that name.
Parameter parameter_of(Module& module, const std::string& name);

inline void set_parameter(Module& module, const std::string& name, const Tensor& value) {
  parameter_of(module, name).set_value(value);
}

/// The values of all parameters.
std::map<std::string, Tensor> parameters_of(Module& module);

inline AttentionContext causal_context(KvCache* cache = nullptr) {
  AttentionContext context;
  context.causal = true, context.cache = cache;
  return context;
}

/// A transformer layer of sizes that all differ.
TransformerLayerConfig small_layer_config(bool norm_first, double dropout = 0);

/// A transformer layer of the golden cases "pre" and "post", with "relu" or "gelu".
inline TransformerLayerConfig golden_layer_config(const std::string& place, const std::string& activation) {
  TransformerLayerConfig config;
  config.width = 12;
  config.attention.heads = 3;
  config.feed_forward = 19;
  config.activation = activation_named(activation);
  config.norm_first = place == "pre";
  return config;
}

/// One thread until the end of the scope: for models so small that two would mostly wait for each other.
struct SingleThread : Threads {
  SingleThread() : Threads(1) {}
};

/// The next draws of every dropout are the first ones again.
inline void rewind(Module& module) {
  for (auto& [name, counter] : module.named_counters()) *counter = 0;
}

/// Gradcheck of every parameter of a module in double, and of `inputs`, except key biases: they add the same
/// to all scores of a row, so their gradient is zero, and a ratio to it says nothing
/// (check_layer_against_golden checks it).
GradcheckReport gradcheck_module(Module& module, NamedTensors inputs, const std::function<Tensor()>& function,
                                 const GradcheckOptions& options = {});

/// The output of `function`, and the gradients of `inputs` and of the module's trainable parameters, by name.
NamedTensors output_and_gradients(Module& module, const NamedTensors& inputs,
                                  const std::function<Tensor()>& function);

/// CHECK_BELOW of the relative error of each, which must have the same names.
void check_near(const NamedTensors& got, const NamedTensors& expected, double bound);

/// Checks at most `elements` of every input: enough for models whose layers have been checked fully.
inline GradcheckOptions sampled(Index elements) {
  GradcheckOptions options;
  const Index most = gradcheck_most_elements;  // where all checks are small
  options.most_elements = most > 0 ? std::min(most, elements) : elements;
  return options;
}

/// Checked elements of every input; 0 for all.
inline GradcheckOptions second_order(Index elements = 0) {
  GradcheckOptions options = elements > 0 ? sampled(elements) : GradcheckOptions();
  options.second_order = true;
  return options;
}

/// The golden files' name of a parameter; they store a packed projection as three.
std::vector<std::string> golden_parts(const std::string& name);

/// A golden tensor under our name, for parameters of every kind: golden_parameter(g, "case", "param.", name).
Tensor golden_parameter(const Golden& golden, const std::string& name_of_case, const std::string& prefix,
                        const std::string& name, DType type = DType::f64);

/// check(NAME, our part, golden part) for each golden tensor that `ours` holds.
void for_each_golden_part(const Golden& golden, const std::string& name_of_case, const std::string& prefix,
                          const std::string& name, const Tensor& ours,
                          const std::function<void(const std::string&, const Tensor&, const Tensor&)>& check);

using GoldenInputs = std::map<std::string, Tensor>;

/// Runs a layer with PyTorch's parameters and inputs in double and in single precision, and compares its
/// output and all gradients. `call` maps the case's "in." tensors to the output; `file` holds the case.
void check_layer_against_golden(const std::string& name_of_case, Module& module,
                                const std::function<Tensor(const GoldenInputs& in)>& call,
                                const char* file = "layers");
/// The same for attention to "x" itself or to "memory", under the masks and at the positions that the case
/// has.
void check_attention_against_golden(const std::string& name_of_case, Attention& layer, bool causal,
                                    const char* file = "layers");

}  // namespace tapeformer
