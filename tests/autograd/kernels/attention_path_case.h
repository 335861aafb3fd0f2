#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/paths.h>
#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/autograd/ops/attention_search.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

namespace tapeformer {

/// Another TAPEFORMER_ATTENTION during its lifetime.
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

/// Products of f32 in TF32 during its lifetime.
class ByTf32 {
 public:
  ByTf32() { set_matmul_precision(MatmulPrecision::tf32); }
  ~ByTf32() { set_matmul_precision(before_); }
  ByTf32(const ByTf32&) = delete;
  ByTf32& operator=(const ByTf32&) = delete;

 private:
  MatmulPrecision before_ = matmul_precision();
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

/// By the kernels that TAPEFORMER_ATTENTION names; split ones come before all but the plain ones. "tf32" is
/// f32 by tensor cores.
inline AttentionPath gpu_path(const std::string& kind, DType type) {
  const bool is_tf32 = kind == "tf32";
  const std::string chosen = kind == "split" || is_tf32 ? "tensor_cores" : kind;
  AttentionPath path =
      path_by(kind + " " + name_of(type), type, Device::cuda(), scaled_dot_product_attention);
  path.run = [=, run = path.run](const auto& c, const Tensor& seed, const auto& problem) {
    const AttentionBy by(chosen.c_str());
    std::optional<ByTf32> tf32;
    if (is_tf32) tf32.emplace();
    return run(c, seed, problem);
  };
  if (is_tf32) path.rounded = {0x1p-11, 0x1p-11, 0, 0x1p-11};
  if (type == DType::bf16) {
    const double u = unit_roundoff(type);
    path.rounded = kind == "plain" ? Roundings{0, 0, u} : Roundings{u, u, u};
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
      wrong_in(path.run(c, seed, {}), expected_attention(c, seed, path.type, path.rounded), path);
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

/// One attention in bf16 as the kernels have it. Where results and gradients go there is `old`.
struct KernelCase {
  explicit KernelCase(const AttentionCase& c, double old = kNan) {
    const AttentionInputs& in = c.in;
    plan = plan_attention({in.B(), in.T(), in.S(), in.H(), in.G(), in.query.size(3), in.value.size(3)},
                          options_on_gpu(c.options), Device::cuda());
    Generator random(test_seed(5));
    const Tensor seed = random_normal({in.B(), in.T(), in.H(), in.value.size(3)}, random);
    const auto there = [](const Tensor& x) { return on_gpu(x.to(Device::cpu()).to(DType::bf16)); };
    const auto filled_there = [&](const Shape& shape) {
      return there(Tensor::full(shape, old, DType::f64, Device::cpu()));
    };
    query = there(in.query), key = there(in.key), value = there(in.value), dy = there(seed);
    y = filled_there(seed.shape());
    log_sum = Tensor::empty({in.B(), in.H(), in.T()}, DType::f32, Device::cuda());
    dquery = filled_there(in.query.shape()), dkey = filled_there(in.key.shape());
    dvalue = filled_there(in.value.shape());
  }
  kernels::AttentionOperands<BFloat16> operands() const {
    const auto at = [](const Tensor& x) { return x.defined() ? x.address<float>() : nullptr; };
    return {query.address<BFloat16>(),
            key.address<BFloat16>(),
            value.address<BFloat16>(),
            nullptr,
            at(plan.bias()),
            at(plan.options.relative_bias),
            at(plan.options.score_parameter),
            at(plan.options.sinks)};
  }
  void plain_forward() const {
    const AttentionBy plain("plain");
    kernels::attention_forward(kernels::Cuda{0}, plan.shape, operands(), y.address<BFloat16>(),
                               log_sum.address<float>());
  }
  /// Whether the kernels took it.
  bool hopper_forward(const kernels::HopperSchedule& schedule = {}) const {
    return kernels::hopper_attention_forward(kernels::Cuda{0}, plan.shape, operands(), y.address<BFloat16>(),
                                             log_sum.address<float>(), schedule);
  }
  /// Whether the kernels took it, after a forward pass.
  template <class Backward>
  bool backward(Backward&& run, bool add, std::vector<bool> wanted = {true, true, true}) const {
    const auto write = [&](std::size_t which, const Tensor& x) {
      return kernels::Write<BFloat16>{wanted[which] ? x.address<BFloat16>() : nullptr, add};
    };
    const kernels::AttentionGradients<BFloat16> to{write(0, dquery), write(1, dkey), write(2, dvalue)};
    return run(kernels::Cuda{0}, plan.shape, operands(), y.address<BFloat16>(), log_sum.address<float>(),
               dy.address<BFloat16>(), to);
  }
  std::vector<Tensor> gradients() const { return {readable(dquery), readable(dkey), readable(dvalue)}; }

  Tensor query, key, value, y, log_sum, dy, dquery, dkey, dvalue;
  AttentionPlan plan;
};

}  // namespace tapeformer
