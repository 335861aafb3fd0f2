#pragma once

#include <tapeformer/tests/autograd/ops/attention_case.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tapeformer {

/// Unit roundoffs where a kernel rounds values computed in `type` to bf16 or TF32; 0 where it does not.
struct Roundings {
  double weights = 0;  ///< of the forward pass, before they are multiplied by values
  double factors = 0;  ///< weights and gradients of scores in the backward pass, before their products
  double results = 0;
  double inputs = 0;  ///< query, key, value and the output's gradient, before their products
};

/// The largest errors, relative to the oracle, of outputs, gradients, weights and gradients of scores that
/// are computed in `type` from rounded inputs: whatever the tiles, their order, and the fused operations.
/// `raw` are scores that are not products; they may be off by another `of_scores` [B, H, T, S].
///
/// A score is off by e, so its weight by the factor exp(2 max e) and the roundings of the sum by which it is
/// divided; sums over weights add up their errors and their own roundings. Rounding a factor to bf16 or TF32
/// moves each product by its share, as rounding an input does: an output by sum w |v|, for example. The
/// kernels take the row's sum of weights times their gradients as dy y, so the error of y carries over to
/// that sum, and with it to each score's gradient.
inline AttentionOracle attention_rounding(const AttentionInputs& inputs, const AttentionOptions& all_options,
                                          const Tensor& seed, const AttentionOracle& exact, DType type,
                                          const Tensor& of_scores = {}, const Roundings& rounded = {},
                                          const Tensor& raw = {}) {
  constexpr Index kFew = 8;  // of the inputs, the scale, dropout's factor, quotients
  const AttentionInputs in = on_cpu(inputs);
  const AttentionOptions options = moved(all_options, Device::cpu());
  const Tensor dy = seed.to(Device::cpu());
  const Index B = in.B(), T = in.T(), H = in.H(), S = in.S(), G = in.G();
  const Index D = raw.defined() ? 0 : in.query.size(3), E = in.value.size(3);
  const Shape scores{B, H, T, S};
  const double u = unit_roundoff(type);
  const double underflow =
      type == DType::f64 ? 0x1p-1020 : 0x1p-124;  // of weights, which may be flushed to 0
  const double product = gamma_of(D + kFew, type), output = gamma_of(S + kFew, type),
               input = gamma_of(T * (H / G) + kFew, type), share = gamma_of(E + S + kFew, type),
               of_inputs = rounded.inputs * (2 + rounded.inputs);  // a product of two
  AttentionOracle bound;
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f64, Device::cpu()); };
  bound.y = zeros({B, T, H, E}), bound.weights = zeros(scores), bound.dscores = zeros(scores);
  for (const Tensor& x : in.list()) bound.gradients.push_back(zeros(x.shape()));
  ModifierSums sums(options, scores), sizes(options, scores), counts(options, scores);
  const bool is_softmax = options.weighting == AttentionWeighting::softmax;
  const Tensor kept = dropout(Tensor::full(scores, 1, DType::f64, Device::cpu()), options.dropout,
                              options.dropout_key);  // 0 or 1 / (1 - p)
  const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(D));
  double *y = bound.y.data<double>(), *dq = bound.gradients[0].data<double>();
  double *dk = bound.gradients[1].data<double>(), *dv = bound.gradients[2].data<double>();
  const double *query = in.query.data<double>(), *key = in.key.data<double>(),
               *value = in.value.data<double>();
  const double* seed_at = dy.data<double>();
  std::vector<double> off(static_cast<std::size_t>(S)), spread(off), weight_error(off);
  std::vector<ScoreValue> function(off.size()), function_error(off.size());
  const LeftIn left_in(options, in);
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / (H * T), h = row / T % H, t = row % T, g = h / (H / G);
    const auto at_t = [&](Index width) { return ((b * T + t) * H + h) * width; };
    const auto at_s = [&](Index s, Index width) { return ((b * S + s) * G + g) * width; };
    const double *w = exact.weights.data<double>() + row * S, *ds = exact.dscores.data<double>() + row * S;
    std::vector<Index> seen;
    const QueryPlace place = place_of(options, b, t, T, S);
    const double sink = options.sinks.defined() ? options.sinks.at(h) : 0;
    double most_off = 0, largest_score = std::fabs(sink), largest = -kInfinity;
    Index likeliest = 0;
    for (Index s = 0; s < S; ++s) {
      if (!left_in(b, h, t, s)) continue;
      const auto i = static_cast<std::size_t>(s);
      double score = raw.defined() ? raw.at(row * S + s) : 0, size = std::fabs(score);
      for (Index d = 0; d < D; ++d) {
        const double term = scale * query[at_t(D) + d] * key[at_s(s, D) + d];
        score += term, size += std::fabs(term);
      }
      const double of_score =
          (product + 4 * u + of_inputs) * size + (of_scores.defined() ? of_scores.at(row * S + s) : 0);
      function[i] = score_value(options, h, score);
      function_error[i] = score_rounding(options, h, score, of_score, u);
      if (options.score_function != ScoreFunction::none) size = std::fabs(function[i].value);
      // The score with added terms, and as an argument of exp: less the largest, perhaps to base 2.
      const double bias = added_at(options, scores, row * S + s, s - place.first - place.position),
                   added = std::fabs(bias);
      if (function[i].value + bias > largest) largest = function[i].value + bias, likeliest = s;
      off[i] = function_error[i].value + (product + 4 * u) * added + 4 * u * size;
      largest_score = std::max(largest_score, size + added);
      most_off = std::max(most_off, off[i]);
      seen.push_back(s);
    }
    const auto count = static_cast<Index>(seen.size());
    const double of_total = most_off + 8 * u * largest_score + gamma_of(2 * count + 2 * kFew, type);
    double of_product = 0;
    for (const Index s : seen) {
      const auto i = static_cast<std::size_t>(s);
      const double keep = kept.at(row * S + s);
      weight_error[i] = is_softmax ? w[s] * std::expm1(off[i] + of_total) + underflow
                                   : w[s] * ((1 - w[s]) * std::expm1(off[i]) + kFew * u) + underflow;
      bound.weights.data<double>()[row * S + s] = weight_error[i];
      spread[i] = 0;  // sum |dy v|: the size of the terms of its dscore
      for (Index e = 0; e < E; ++e) {
        const double v = std::fabs(value[at_s(s, E) + e]), d = std::fabs(seed_at[at_t(E) + e]);
        const double weight = w[s] + weight_error[i];
        y[at_t(E) + e] += keep * v * (weight_error[i] + (output + rounded.weights + rounded.inputs) * weight);
        dv[at_s(s, E) + e] +=
            keep * d * (weight_error[i] + (input + rounded.factors + rounded.inputs) * weight);
        spread[i] += keep * d * v;
      }
      of_product += (weight_error[i] + share * w[s]) * spread[i];
    }
    for (Index e = 0; e < E; ++e) {
      double& of_y = y[at_t(E) + e];
      of_y += rounded.results * (std::fabs(exact.y.at(at_t(E) + e)) + of_y);
      if (rounded.weights > 0 || rounded.results > 0) of_product += of_y * std::fabs(seed_at[at_t(E) + e]);
    }
    double total = 0;  // sum w |dy v|, an upper bound of their common part
    for (const Index s : seen) total += w[s] * spread[static_cast<std::size_t>(s)];
    for (const Index s : seen) {
      const auto i = static_cast<std::size_t>(s);
      const double both = spread[i] + total, dz = std::fabs(exact.dvalues.at(row * S + s));
      // For a sigmoid's slope w (1 - w), in which 1 - w may be rounded.
      const double of_value =
          is_softmax
              ? weight_error[i] * both + w[s] * (share * both + of_inputs * spread[i] + of_product)
              : (w[s] * ((1 - w[s]) * (std::expm1(2 * off[i]) + share + of_inputs) + kFew * u) + underflow) *
                    spread[i];
      const ScoreValue &f = function[i], &f_error = function_error[i];
      const double error = of_value * (std::fabs(f.by_score) + f_error.by_score) +
                           dz * (f_error.by_score + 2 * u * std::fabs(f.by_score));
      const double factor = error + rounded.factors * (std::fabs(ds[s]) + error);
      bound.dscores.data<double>()[row * S + s] = error;
      const Index distance = s - place.first - place.position;
      sums.add(row * S + s, distance, of_value,
               of_value * (std::fabs(f.by_parameter) + f_error.by_parameter) + dz * f_error.by_parameter);
      sizes.add(row * S + s, distance, dz, dz * std::fabs(f.by_parameter));
      counts.add(row * S + s, distance, 1, 1);
      for (Index d = 0; d < D; ++d) {
        dq[at_t(D) + d] +=
            std::fabs(scale * key[at_s(s, D) + d]) * (factor + (output + rounded.inputs) * std::fabs(ds[s]));
        dk[at_s(s, D) + d] +=
            std::fabs(scale * query[at_t(D) + d]) * (factor + (input + rounded.inputs) * std::fabs(ds[s]));
      }
    }
    if (seen.empty() || !options.sinks.defined()) continue;
    const double of_sink = w[likeliest] * std::exp(sink - largest);
    sums.add_sink(h, of_sink * (std::expm1(2 * u * std::fabs(sink) + of_total) * total + of_product) +
                         underflow * total);
    sizes.add_sink(h, of_sink * total), counts.add_sink(h, 1);
  }
  bound.modifiers = sums.list();
  for (std::size_t i = 0; i < bound.modifiers.size(); ++i) {
    const Tensor size = sizes.list()[i], count = counts.list()[i];
    for (Index at = 0; at < size.elements(); ++at)
      bound.modifiers[i].data<double>()[at] +=
          gamma_of(static_cast<Index>(count.at(at)) + kFew, type) * size.at(at);
  }
  for (std::size_t i = 0; i < bound.gradients.size() && rounded.results > 0; ++i) {
    double* const of = bound.gradients[i].data<double>();
    for (Index at = 0; at < bound.gradients[i].elements(); ++at)
      of[at] += rounded.results * (std::fabs(exact.gradients[i].at(at)) + of[at]);
  }
  return bound;
}

/// Both paths, in both types, against plain loops.
inline void check_attention_paths(const AttentionInputs& in, const AttentionOptions& options,
                                  Generator& random) {
  const Tensor seed = random_normal({in.B(), in.T(), in.H(), in.value.size(3)}, random);
  AttentionOracle expected = attention_oracle(in, options, seed);
  AttentionOracle bound = attention_rounding(in, options, seed, expected, DType::f32);
  expected.gradients = joined(expected.gradients, expected.modifiers);
  bound.gradients = joined(bound.gradients, bound.modifiers);
  for (const AttentionFunction path : kAttentionPaths) {
    CAPTURE(path == composed_attention);
    for (const DType type : {DType::f64, DType::f32}) {
      CAPTURE(name_of(type));
      const std::vector<Tensor> all = joined(in.list(), list_of_modifiers(options));
      const OpResult got = run_op(attention_by(path, options), in_type(all, type), seed);
      CHECK(got.y.dtype() == type);
      if (type == DType::f64) CHECK_BELOW(attention_error(got, expected, 0.1), 1e-11);
      if (type == DType::f32) check_within(got, expected, bound);
    }
  }
}

}  // namespace tapeformer
