#pragma once

#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/autograd/ops/attention_search.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace tapeformer {

/// Another TAPEFORMER_ATTENTION for as long as it lives.
class AttentionBy {
 public:
  explicit AttentionBy(const char* path) {
    const char* set = std::getenv("TAPEFORMER_ATTENTION");
    before_ = set == nullptr ? "hopper" : set;
    setenv("TAPEFORMER_ATTENTION", path, 1);
  }
  ~AttentionBy() { setenv("TAPEFORMER_ATTENTION", before_.c_str(), 1); }
  AttentionBy(const AttentionBy&) = delete;
  AttentionBy& operator=(const AttentionBy&) = delete;

 private:
  std::string before_;
};

/// Random inputs without masks.
inline AttentionCase simple_case(Index B, Index T, Index S, Index H, Index G, Index D, Index E,
                                 Generator& random) {
  return {random_inputs(B, T, S, H, G, D, E, random), {}};
}

/// With modifiers of the scores in f32, which inputs of bf16 take as they are.
inline AttentionOptions options_on_gpu(const AttentionOptions& options, DType type = DType::bf16) {
  AttentionOptions there = moved(options, Device::cuda());
  for (Tensor* x : modifiers_of(there)) *x = x->to(wide(type));
  return there;
}

/// The inputs on the GPU, `shift` numbers behind where memory begins. Values that are the keys stay the keys.
inline std::vector<Tensor> inputs_on_gpu(const AttentionInputs& in, DType type, Index shift = 0) {
  const auto there = [&](const Tensor& x) { return on_gpu(x.to(Device::cpu()).to(type), shift); };
  const Tensor key = there(in.key);
  return {there(in.query), key, in.value.state() == in.key.state() ? key : there(in.value)};
}

/// The output by a path.
inline Tensor attention_by(const char* path, const AttentionInputs& in, const AttentionOptions& options,
                           DType type = DType::bf16, Index shift = 0) {
  const AttentionBy by(path);
  const std::vector<Tensor> there = inputs_on_gpu(in, type, shift);
  return readable(scaled_dot_product_attention(there[0], there[1], there[2], options_on_gpu(options, type)));
}

/// The forward pass by a path, and its backward pass by the plain kernels, which show what they were told of
/// each row's sum.
inline OpResult passes_by(const char* path, const AttentionInputs& in, const AttentionOptions& options,
                          const Tensor& seed, DType type = DType::bf16) {
  Tape tape;
  std::vector<Tensor> leaves = inputs_on_gpu(in, type);
  for (const Tensor& leaf : leaves) tape.watch(leaf);
  OpResult result;
  const Tensor y = [&] {
    const AttentionBy by(path);
    return scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], options_on_gpu(options, type));
  }();
  result.y = readable(y);
  const AttentionBy plain("plain");
  for (const Tensor& dx : tape.gradients(y, leaves, on_gpu(seed.to(type))))
    result.gradients.push_back(readable(dx));
  return result;
}

/// `got`, computed from inputs in `type`, is what plain loops compute in f64, up to the roundings. Below
/// f64 it may lack the output, or the last gradients.
inline void check_attention(const OpResult& got, const AttentionInputs& in, const AttentionOptions& options,
                            const Tensor& seed, DType type, const RoundedToBf16& rounded) {
  const AttentionOracle expected = attention_oracle(in, options, seed);
  if (type == DType::f64) {
    CHECK_BELOW(attention_error(got, expected, 0.1), 1e-11);
    return;
  }
  const AttentionOracle bound = attention_rounding(in, options, seed, expected, wide(type), {}, rounded);
  if (got.y.defined()) CHECK_BELOW(over_bound(got.y, expected.y, bound.y), 1);
  for (std::size_t i = 0; i < got.gradients.size(); ++i) {
    CAPTURE(i);
    CHECK_BELOW(over_bound(got.gradients[i], expected.gradients[i], bound.gradients[i]), 1);
  }
}

/// The roundings of paths on tensor cores in the forward pass.
inline RoundedToBf16 rounded_forward(DType type) {
  if (type != DType::bf16) return {};
  return {unit_roundoff(type), 0, unit_roundoff(type)};
}

/// The output, of inputs that hold numbers of `type`.
inline void check_output(const Tensor& y, const AttentionInputs& in, const AttentionOptions& options,
                         DType type = DType::bf16) {
  const Tensor seed = Tensor::zeros(y.shape(), DType::f64, Device::cpu());
  check_attention({y, {}}, in, options, seed, type, rounded_forward(type));
}

/// Relative differences above this do not come from roundings.
constexpr double kAnother = 0.16;

/// Both passes of what a path computes are those of plain loops in f64; returns them.
inline OpResult check_forward_path(const char* path, const AttentionCase& c, Generator& random,
                                   DType type = DType::bf16) {
  const std::string described = description(c);
  CAPTURE(described);
  const AttentionInputs in = as_type(c.in, type);
  const Tensor seed = as_type(host_normal({in.B(), in.T(), in.H(), in.value.size(3)}, random), type);
  OpResult got = passes_by(path, in, c.options, seed, type);
  if (in.value.state() == in.key.state()) got.gradients.resize(1);  // the others are summed
  check_attention(got, in, c.options, seed, type, rounded_forward(type));
  return got;
}

/// By the kernels that TAPEFORMER_ATTENTION names; split ones come before all but the plain ones.
inline AttentionPath gpu_path(const std::string& kind, DType type) {
  const std::string chosen = kind == "split" ? "tensor_cores" : kind;
  AttentionPath path =
      path_by(kind + " " + name_of(type), type, Device::cuda(), scaled_dot_product_attention);
  path.run = [=, run = path.run](const auto& c, const Tensor& seed, const auto& problem) {
    const AttentionBy by(chosen.c_str());
    return run(c, seed, problem);
  };
  if (type == DType::bf16) {
    const double u = unit_roundoff(type);
    path.rounded = kind == "plain" ? RoundedToBf16{0, 0, u} : RoundedToBf16{u, u, u};
  }
  return path;
}

/// Both passes by a path, gradients of modifiers too, are those of plain loops, up to roundings.
inline void check_path(const AttentionPath& path, AttentionCase c, Generator& random) {
  c.in = as_type(on_cpu(c.in), path.type);
  for (Tensor* x : modifiers_of(c.options)) *x = as_type(*x, wide(path.type));
  const Tensor seed =
      as_type(random_normal({c.in.B(), c.in.T(), c.in.H(), c.in.value.size(3)}, random), path.type);
  const std::string wrong =
      wrong_in(path.run(c, seed, {}), expected_attention(c, seed, path.type, path.rounded), path.type);
  CHECK(wrong == "");
}

/// All that may be done to the scores of two heads at once.
inline AttentionOptions modified_options(Index queries, Index keys, Generator& random) {
  AttentionOptions options;
  options.score_function = ScoreFunction::softcap, options.score_parameter = values({1.5, 0.7});
  options.relative_bias = random_normal({2, 2 * std::max(queries, keys) - 1}, random);
  options.mask = random_normal({2, 1, keys}, random);
  options.sinks = random_normal({2}, random);
  return options;
}

inline AttentionCase with_widths(AttentionCase c, Index key_width, Index value_width, Generator& random) {
  c.in = random_inputs(c.in.B(), c.in.T(), c.in.S(), c.in.H(), c.in.G(), key_width, value_width, random);
  return c;
}

}  // namespace tapeformer
