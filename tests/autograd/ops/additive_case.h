#pragma once

#include <tapeformer/autograd/ops/additive_attention.h>
#include <tapeformer/tests/autograd/ops/attention_search.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {

/// f(i, query, key, weight) for every pair of every head: its place in [B, H, T, S], and the beginnings of
/// its rows of D numbers.
template <class F>
void each_pair(const AttentionInputs& in, const F& f) {
  const Index T = in.T(), H = in.H(), S = in.S(), G = in.G(), D = in.query.size(3);
  for (Index i = 0; i < in.B() * H * T * S; ++i) {
    const Index s = i % S, t = i / S % T, h = i / S / T % H, b = i / S / T / H;
    f(i, ((b * T + t) * H + h) * D, ((b * S + s) * G + h / (H / G)) * D, h * D);
  }
}

/// The scores [B, H, T, S].
inline Tensor additive_scores(const AttentionInputs& in, const Tensor& weight) {
  const Tensor scores = Tensor::zeros({in.B(), in.H(), in.T(), in.S()}, DType::f64, Device::cpu());
  each_pair(in, [&](Index i, Index q, Index k, Index w) {
    double score = 0;
    for (Index d = 0; d < in.query.size(3); ++d)
      score += weight.at(w + d) * std::tanh(in.query.at(q + d) + in.key.at(k + d));
    scores.data<double>()[i] = score;
  });
  return scores;
}

/// Additive attention and its gradients in plain loops; the last one is the weight's.
inline AttentionOracle additive_oracle(const AttentionInputs& inputs, const Tensor& weights,
                                       const AttentionOptions& options, const Tensor& dy) {
  const AttentionInputs in = on_cpu(inputs);
  const Tensor weight = weights.to(Device::cpu());
  const Index D = in.query.size(3);
  const auto hidden = [&](Index q, Index k, Index d) {
    return std::tanh(in.query.at(q + d) + in.key.at(k + d));
  };
  AttentionOracle result = attention_oracle(in, options, dy, additive_scores(in, weight));
  result.gradients.push_back(Tensor::zeros(weight.shape(), DType::f64, Device::cpu()));
  double *dq = result.gradients[0].data<double>(), *dk = result.gradients[1].data<double>();
  double* dw = result.gradients[3].data<double>();
  each_pair(in, [&](Index i, Index q, Index k, Index w) {
    const double dscore = result.dscores.at(i);
    if (dscore == 0) return;
    for (Index d = 0; d < D; ++d) {
      const double u = hidden(q, k, d);
      dq[q + d] += dscore * weight.at(w + d) * (1 - u * u);
      dk[k + d] += dscore * weight.at(w + d) * (1 - u * u);
      dw[w + d] += dscore * u;
    }
  });
  return result;
}

/// The largest allowed differences between results computed in `type` and the oracle's.
inline AttentionOracle additive_rounding(const AttentionInputs& inputs, const Tensor& weights,
                                         const AttentionOptions& options, const Tensor& dy,
                                         const AttentionOracle& exact, DType type) {
  constexpr Index kFew = 8;
  const AttentionInputs in = on_cpu(inputs);
  const Tensor weight = weights.to(Device::cpu());
  const Index T = in.T(), S = in.S(), D = in.query.size(3);
  const double u = unit_roundoff(type);
  // tanh of a rounded sum of rounded numbers, whose slope is 1 at most, and its own last places.
  const auto hidden_error = [&](Index q, Index k, Index d) {
    return 2 * u * (std::fabs(in.query.at(q + d)) + std::fabs(in.key.at(k + d))) + 4 * u;
  };
  const auto hidden = [&](Index q, Index k, Index d) {
    return std::tanh(in.query.at(q + d) + in.key.at(k + d));
  };
  const Tensor of_scores = Tensor::zeros({in.B(), in.H(), T, S}, DType::f64, Device::cpu());
  each_pair(in, [&](Index i, Index q, Index k, Index w) {
    double error = 0;
    for (Index d = 0; d < D; ++d) {
      const double size = std::fabs(weight.at(w + d));
      error += size * (hidden_error(q, k, d) + gamma_of(D + kFew, type) * std::fabs(hidden(q, k, d)));
    }
    of_scores.data<double>()[i] = error;
  });
  AttentionOracle bound =
      attention_rounding(in, options, dy, exact, type, of_scores, {}, additive_scores(in, weight));
  bound.gradients.push_back(Tensor::zeros(weight.shape(), DType::f64, Device::cpu()));
  double *dq = bound.gradients[0].data<double>(), *dk = bound.gradients[1].data<double>();
  double* dw = bound.gradients[3].data<double>();
  const double of_keys = gamma_of(S + kFew, type), of_queries = gamma_of(T * (in.H() / in.G()) + kFew, type),
               of_pairs = gamma_of(in.B() * T * S + kFew, type);
  each_pair(in, [&](Index i, Index q, Index k, Index w) {
    const double dscore = std::fabs(exact.dscores.at(i)), error = bound.dscores.at(i);
    if (error == 0) return;
    for (Index d = 0; d < D; ++d) {
      const double y = std::fabs(hidden(q, k, d)), off = hidden_error(q, k, d), slope = 1 - y * y;
      const double size = std::fabs(weight.at(w + d));
      const double of_slope = 2 * off * (y + off) + 4 * u;  // 1 - y^2 loses its digits where y is near 1
      dq[q + d] += size * (error * (slope + of_slope) + dscore * (of_slope + of_keys * slope));
      dk[k + d] += size * (error * (slope + of_slope) + dscore * (of_slope + of_queries * slope));
      dw[w + d] += error * (y + off) + dscore * (off + of_pairs * y);
    }
  });
  return bound;
}

using AdditiveFunction = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                    const AttentionOptions&);

/// The inputs are query, key, value, weight, and modifiers_of(options) or none.
inline Op additive_by(AdditiveFunction function, const AttentionOptions& options) {
  return [=](const std::vector<Tensor>& in) {
    return function(in[0], in[1], in[2], in[3], with_modifiers(options, in, 4));
  };
}

/// The problem's weight, in numbers of `type`.
inline AttentionPath additive_path(const std::string& name, DType type, Device device,
                                   AdditiveFunction function) {
  AttentionPath path{name, type, {}};
  const auto weight_of = [=](const AttentionCase& c, const AttentionProblem& problem) {
    Generator random(static_cast<std::uint64_t>(problem.seed), 102);
    return as_type(random_normal({c.in.H(), c.in.query.size(3)}, random), type);
  };
  path.run = [=](const AttentionCase& c, const Tensor& seed, const AttentionProblem& problem) {
    std::vector<Tensor> inputs = c.in.list();
    inputs.push_back(weight_of(c, problem));
    const Op op = additive_by(function, moved(c.options, device));
    return run_problem(problem, op, inputs, list_of_modifiers(c.options), seed, type, device);
  };
  path.expected = [=](const AttentionCase& c, const Tensor& seed, const AttentionProblem& problem) {
    const Tensor weight = weight_of(c, problem);
    const AttentionOracle exact = additive_oracle(c.in, weight, c.options, seed);
    const AttentionOracle bound = additive_rounding(c.in, weight, c.options, seed, exact, wide(type));
    return ExpectedAttention{{exact.y, joined(exact.gradients, exact.modifiers)},
                             {bound.y, joined(bound.gradients, bound.modifiers)}};
  };
  path.modifies = true;
  path.fit = [](AttentionProblem& p) {
    limit_pairs(p, 8000);  // each takes a hyperbolic tangent for every hidden unit
    p.key_width = std::min<Index>(p.key_width, 40);
    p.scale = p.overflow = 0;  // these scores have no scale, and are bounded
  };
  return path;
}

}  // namespace tapeformer
