#include <tapeformer/tests/nn/module_case.h>

#include <algorithm>

namespace tapeformer {

Tensor real_tokens(const std::vector<Index>& lengths, Index longest) {
  const Tensor mask = Tensor::full({static_cast<Index>(lengths.size()), longest}, 0, DType::boolean);
  bool* to = mask.data<bool>();
  for (const Index length : lengths) {
    std::fill_n(to, length, true);
    to += longest;
  }
  return mask;
}

Parameter parameter_of(Module& module, const std::string& name) {
  for (const auto& [path, parameter] : module.named_parameters())
    if (path == name) return parameter;
  FAIL("no parameter is called " << name);
  return {};
}

std::map<std::string, Tensor> parameters_of(Module& module) {
  std::map<std::string, Tensor> values;
  for (const auto& [name, parameter] : module.named_parameters()) values[name] = parameter.value();
  return values;
}

void randomise(Module& module, std::uint64_t seed) {
  Generator random(test_seed(seed));
  for (auto& [name, parameter] : module.named_parameters()) {
    // Factors near 0 would let norms divide by little.
    const bool is_gain =
        name.find("norm.weight") != std::string::npos || name.find("value_residual") != std::string::npos;
    random.fill_normal(parameter.value(), is_gain ? 1 : 0, 0.4);
  }
}

TransformerLayerConfig small_layer_config(bool norm_first, double dropout) {
  TransformerLayerConfig config;
  config.width = 6;
  config.attention.heads = 3;
  config.attention.key_width = 4;
  config.attention.value_width = 5;
  config.feed_forward = 7;
  config.activation = Unary::gelu;
  config.dropout = dropout;
  config.norm_first = norm_first;
  return config;
}

GradcheckReport gradcheck_module(Module& module, NamedTensors inputs, const std::function<Tensor()>& function,
                                 const GradcheckOptions& options) {
  const SingleThread guard;
  for (auto& [name, parameter] : module.named_parameters()) {
    if (name.find("key.bias") == std::string::npos) inputs.emplace_back(name, parameter.value());
  }
  GradcheckOptions finer = options;
  // Norms and softmaxes of numbers like 0.1 bend within a hundredth: differences have 625 times smaller
  // steps.
  finer.step *= 0.2;
  return gradcheck(
      [&] {
        rewind(module);
        return function();
      },
      inputs, finer);
}

NamedTensors output_and_gradients(Module& module, const NamedTensors& inputs,
                                  const std::function<Tensor()>& function) {
  rewind(module);
  Tape tape;
  NamedTensors all = inputs;
  for (const auto& [name, x] : inputs) tape.watch(x);
  for (const auto& [name, parameter] : module.named_parameters())
    if (parameter.trainable()) all.emplace_back(name, parameter.value());
  std::vector<Tensor> of;
  for (const auto& [name, x] : all) of.push_back(x);
  const Tensor y = function();
  const std::vector<Tensor> gradients = tape.gradients(y, of, random_values(y.shape(), 9));
  for (std::size_t i = 0; i < all.size(); ++i) all[i].second = gradients[i];
  all.emplace_back("output", y);
  return all;
}

void check_near(const NamedTensors& got, const NamedTensors& expected, double bound) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO(got[i].first);
    CHECK(got[i].first == expected[i].first);
    CHECK_BELOW(relative_error(got[i].second, expected[i].second), bound);
  }
}

std::vector<std::string> golden_parts(const std::string& name) {
  const std::string packed = "query_key_value.";
  const std::size_t at = name.find(packed);
  if (at == std::string::npos) return {name};
  std::vector<std::string> parts;
  for (const char* part : {"query.", "key.", "value."}) {
    parts.push_back(name.substr(0, at) + part + name.substr(at + packed.size()));
  }
  return parts;
}

Tensor golden_parameter(const Golden& golden, const std::string& name_of_case, const std::string& prefix,
                        const std::string& name, DType type) {
  TensorList parts;
  for (const std::string& part : golden_parts(name)) {
    parts.push_back(golden.tensor(name_of_case, prefix + part, type));
  }
  return parts.size() == 1 ? parts[0] : concat(parts, 0);
}

void for_each_golden_part(
    const Golden& golden, const std::string& name_of_case, const std::string& prefix, const std::string& name,
    const Tensor& ours, const std::function<void(const std::string&, const Tensor&, const Tensor&)>& check) {
  Index from = 0;
  for (const std::string& part : golden_parts(name)) {
    INFO(part);
    const Tensor expected = golden.tensor(name_of_case, prefix + part);
    check(part, slice(ours, 0, from, expected.size(0)), expected);
    from += expected.size(0);
  }
  CHECK(from == ours.size(0));
}

void check_layer_against_golden(const std::string& name_of_case, Module& module,
                                const std::function<Tensor(const GoldenInputs& in)>& call, const char* file) {
  const Golden golden(file);
  const std::vector<std::string> zero_gradients = golden.listed(name_of_case, "zero_gradients");
  for (const DType type : {DType::f64, DType::f32}) {
    const double tolerance = type == DType::f64 ? 1e-11 : 1e-5;
    INFO(name_of_case, " in ", name_of(type));
    auto parameters = module.named_parameters();
    std::size_t parts = 0;
    for (auto& [name, parameter] : parameters) {
      parameter.set_value(golden_parameter(golden, name_of_case, "param.", name, type));
      parts += golden_parts(name).size();
    }
    REQUIRE(parts == golden.names(name_of_case, "param.").size());

    Tape tape;
    GoldenInputs in;
    std::vector<std::string> differentiable;
    std::vector<Tensor> watched;
    for (const std::string& name : golden.names(name_of_case, "in.")) {
      in[name] = golden.tensor(name_of_case, "in." + name, type);
      if (golden.names(name_of_case, "grad." + name).empty()) continue;
      tape.watch(in[name]);
      differentiable.push_back(name);
      watched.push_back(in[name]);
    }
    const Tensor y = call(in), seed = golden.tensor(name_of_case, "seed", type);
    CHECK_BELOW(relative_error(y, golden.tensor(name_of_case, "out")), tolerance);
    const std::vector<Tensor> gradients = tape.gradients(y, watched, seed);
    for (std::size_t i = 0; i < differentiable.size(); ++i) {
      INFO(differentiable[i]);
      CHECK_BELOW(relative_error(gradients[i], golden.tensor(name_of_case, "grad." + differentiable[i])),
                  tolerance);
    }
    module.clear_gradients();
    tape.backward(y, seed);
    // The rounding noise of a key bias in f32 is that of the sums in its weight's gradient.
    const auto largest_beside = [&](const std::string& bias) {
      const std::string weight = bias.substr(0, bias.rfind('.')) + ".weight";
      const Tensor gradient = golden.tensor(name_of_case, "grad." + weight);
      return absolute_error(gradient, Tensor::zeros(gradient.shape(), DType::f64));
    };
    for (const auto& [name, parameter] : parameters) {
      for_each_golden_part(golden, name_of_case, "grad.", name, parameter.gradient(),
                           [&](const std::string& part, const Tensor& gradient, const Tensor& expected) {
                             if (std::count(zero_gradients.begin(), zero_gradients.end(), part) > 0) {
                               CHECK_BELOW(absolute_error(gradient, Tensor::zeros(gradient.shape())),
                                           type == DType::f64 ? 1e-12 : 2e-6 * largest_beside(part));
                             } else {
                               CHECK_BELOW(relative_error(gradient, expected), tolerance);
                             }
                           });
    }
  }
}

void check_attention_against_golden(const std::string& name_of_case, Attention& layer, bool causal,
                                    const char* file) {
  const auto call = [&](const GoldenInputs& in) {
    AttentionContext context;
    context.causal = causal;
    const std::pair<const char*, Tensor*> given[] = {{"mask", &context.mask},
                                                     {"may_attend", &context.key_mask},
                                                     {"memory_may_attend", &context.key_mask},
                                                     {"positions", &context.positions}};
    for (const auto& [name, to] : given)
      if (in.count(name) > 0) *to = in.at(name);
    return layer(in.at("x"), in.at(in.count("memory") > 0 ? "memory" : "x"), context);
  };
  check_layer_against_golden(name_of_case, layer, call, file);
}

}  // namespace tapeformer
