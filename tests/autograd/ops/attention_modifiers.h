#pragma once

#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

#include <cmath>

namespace tapeformer {

/// The tensors in options that get gradients.
inline std::vector<Tensor*> modifiers_of(AttentionOptions& options) {
  std::vector<Tensor*> all;
  if (options.mask.defined() && options.mask.dtype() != DType::boolean) all.push_back(&options.mask);
  for (Tensor* x : {&options.relative_bias, &options.score_parameter, &options.sinks})
    if (x->defined()) all.push_back(x);
  return all;
}
inline std::vector<Tensor> list_of_modifiers(AttentionOptions options) {
  std::vector<Tensor> list;
  for (const Tensor* x : modifiers_of(options)) list.push_back(*x);
  return list;
}

/// The options with their modifiers replaced by the inputs from `first` on, or else in the wide type of the
/// inputs.
inline AttentionOptions with_modifiers(AttentionOptions options, const std::vector<Tensor>& inputs,
                                       std::size_t first) {
  for (Tensor* x : modifiers_of(options))
    *x = first < inputs.size() ? inputs[first++] : x->to(wide(inputs[0].dtype()));
  return options;
}

/// The function of a score with its derivatives.
struct ScoreValue {
  double value, by_score, by_parameter;
};
inline double parameter_at(const AttentionOptions& options, Index head) {
  const Tensor& parameter = options.score_parameter;
  return parameter.defined() ? parameter.at(parameter.elements() == 1 ? 0 : head) : 1;
}
inline ScoreValue score_value(const AttentionOptions& options, Index head, double score) {
  const double c = parameter_at(options, head), t = std::tanh(score / c);
  switch (options.score_function) {
    case ScoreFunction::softcap: return {c * t, 1 - t * t, t - score / c * (1 - t * t)};
    default: return {score, 1, 0};
  }
}

/// The largest error of a function of a score that is off by `off` in arithmetic of roundoff u, its parameter
/// rounded too: |f'| is at most 1, and an argument of tanh off by e moves its derivatives by at most e.
inline ScoreValue score_rounding(const AttentionOptions& options, Index head, double score, double off,
                                 double u) {
  constexpr double kFew = 8;
  const double c = parameter_at(options, head), x = std::fabs(score / c);
  const ScoreValue f = score_value(options, head, score);
  switch (options.score_function) {
    case ScoreFunction::softcap: {
      const double slope = 2 * off / c + 2 * kFew * u * (1 + x * f.by_score);
      return {off + kFew * u * std::fabs(f.value), slope,
              off / c + kFew * u * (std::fabs(f.by_parameter) + 1) + x * 2 * kFew * u};
    }
    default: return {off, 0, 0};
  }
}

/// The terms added to the function of the score of pair i of `scores` [B, H, T, S], whose key lies `distance`
/// after the query's position.
inline double added_at(const AttentionOptions& options, const Shape& scores, Index i, Index distance) {
  const bool additive = options.mask.defined() && options.mask.dtype() != DType::boolean;
  double sum = additive ? broadcast_at(options.mask, scores, i) : 0;
  if (options.relative_bias.defined()) {
    const Index size = options.relative_bias.size(1), h = i / (scores[2] * scores[3]) % scores[1];
    const Index row = options.relative_bias.size(0) == 1 ? 0 : h;
    sum += options.relative_bias.at(row * size + size / 2 + distance);
  }
  return sum;
}

/// Sums over pairs in the shapes of modifiers_of(options).
class ModifierSums {
 public:
  ModifierSums(const AttentionOptions& options, const Shape& scores) : options_(options), scores_(scores) {
    const auto zeros = [](const Tensor& x) {
      return x.defined() ? Tensor::zeros(x.shape(), DType::f64, Device::cpu()) : Tensor();
    };
    if (options.mask.defined() && options.mask.dtype() != DType::boolean) mask_ = zeros(options.mask);
    relative_ = zeros(options.relative_bias), parameter_ = zeros(options.score_parameter);
    sinks_ = zeros(options.sinks);
  }

  /// For pair i: the gradients of biases and of the parameter.
  void add(Index i, Index distance, double of_value, double of_parameter) {
    const Index h = i / (scores_[2] * scores_[3]) % scores_[1];
    if (mask_.defined()) {
      Index at = 0, rest = i, step = 1;  // of the last axes first
      for (int axis = -1; axis >= -mask_.rank(); --axis) {
        if (mask_.size(axis) != 1) at += rest % scores_[axis] * step;
        rest /= scores_[axis], step *= mask_.size(axis);
      }
      mask_.data<double>()[at] += of_value;
    }
    if (relative_.defined()) {
      const Index size = relative_.size(1), row = relative_.size(0) == 1 ? 0 : h;
      relative_.data<double>()[row * size + size / 2 + distance] += of_value;
    }
    if (parameter_.defined()) parameter_.data<double>()[parameter_.elements() == 1 ? 0 : h] += of_parameter;
  }
  void add_sink(Index head, double of_sink) {
    if (sinks_.defined()) sinks_.data<double>()[head] += of_sink;
  }

  std::vector<Tensor> list() const {
    std::vector<Tensor> all;
    for (const Tensor& x : {mask_, relative_, parameter_, sinks_})
      if (x.defined()) all.push_back(x);
    return all;
  }

 private:
  const AttentionOptions& options_;
  Shape scores_;
  Tensor mask_, relative_, parameter_, sinks_;
};

/// Inputs and modifiers, for an operation that takes them all.
inline std::vector<Tensor> joined(std::vector<Tensor> a, const std::vector<Tensor>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace tapeformer
