#pragma once

#include <tapeformer/autograd/kernels/attention.h>
#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/tests/autograd/kernels/attention_forward_case.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// One attention with what is done to its scores, in f64 on the host.
struct ModifiedAttention : AttentionCase {
  kernels::ScoreFunction function = kernels::ScoreFunction::none;
  kernels::AttentionWeighting weighting = kernels::AttentionWeighting::softmax;
  Index reach = 0;
  Tensor parameter;  // [1] or [H]
  Tensor relative;   // [1, 2 R + 1] or [H, 2 R + 1]
  Tensor sinks;      // [H]
  Tensor weight;     // [H, D] of additive scores

  bool has_bias() const { return options.mask.defined() && options.mask.dtype() != DType::boolean; }
  bool is_sigmoid() const { return weighting == kernels::AttentionWeighting::sigmoid; }
};

/// The output and all gradients that there are, with their names.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// The key whose position query t of entry b has, as AttentionMasks says.
inline Index position_of(const AttentionMasks& masks, Index b, Index t, Index T, Index S) {
  const auto at = [](const Tensor& x, Index i) { return static_cast<Index>(x.at(i)); };
  Index first = 0, sequence = b;
  if (masks.query_starts.defined()) {
    const Tensor& key_starts = masks.key_starts.defined() ? masks.key_starts : masks.query_starts;
    sequence = 0;
    while (t >= at(masks.query_starts, sequence + 1)) ++sequence;
    first = at(key_starts, sequence);
    t -= at(masks.query_starts, sequence);
    T = at(masks.query_starts, sequence + 1) - at(masks.query_starts, sequence);
    S = at(key_starts, sequence + 1) - first;
  }
  if (masks.key_lengths.defined()) S = at(masks.key_lengths, sequence);
  return first + (masks.alignment == CausalAlignment::top_left ? t : t + S - T);
}

template <class W>
struct ScoreAndSlopes {
  W value, by_score, by_parameter;
};
template <class W>
ScoreAndSlopes<W> apply(kernels::ScoreFunction function, W score, W c) {
  switch (function) {
    case kernels::ScoreFunction::none: return {score, 1, 0};
    case kernels::ScoreFunction::softcap: {
      const W t = std::tanh(score / c), slope = 1 - t * t;
      return {c * t, slope, t - score / c * slope};
    }
    case kernels::ScoreFunction::scaled: return {c * score, c, score};
    default: throw std::invalid_argument("no formula for this function");
  }
}

/// What is rounded to bf16.
enum class ToBf16 {
  nothing,
  outputs,  ///< y, before the backward pass reads it
  factors,  ///< y, and what tensor cores multiply: weights and gradients of scores
};

/// Outputs and, with a seed, gradients in plain loops, pair by pair, computed in W.
template <class W>
NamedTensors modified_oracle(const ModifiedAttention& c, const Tensor& seed,
                             ToBf16 to_bf16 = ToBf16::nothing) {
  const AttentionInputs& in = c.in;
  const Index B = in.B(), T = in.T(), H = in.H(), S = in.S(), G = in.G();
  const Index D = in.query.size(3), E = in.value.size(3);
  const Shape scores{B, H, T, S};
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f64, Device::cpu()); };
  const auto zeros_like = [&](const Tensor& x) { return x.defined() ? zeros(x.shape()) : Tensor(); };
  Tensor y = zeros({B, T, H, E}), dq = zeros(in.query.shape()), dk = zeros(in.key.shape()),
         dv = zeros(in.value.shape());
  Tensor dbias = c.has_bias() ? zeros(c.options.mask.shape()) : Tensor(), drelative = zeros_like(c.relative),
         dparameter = zeros_like(c.parameter), dsinks = zeros_like(c.sinks), dweight = zeros_like(c.weight);
  const Tensor kept =
      dropout(Tensor::full(scores, 1, DType::f64, Device::cpu()), c.options.dropout, c.options.dropout_key);
  const auto add = [](const Tensor& x, Index i, W value) {
    x.data<double>()[i] = static_cast<double>(static_cast<W>(x.at(i)) + value);
  };
  const auto of = [](const Tensor& x, Index i) { return static_cast<W>(x.at(i)); };
  const Tensor of_bias =  // its elements' numbers
      c.has_bias() ? filled(c.options.mask.shape(), [](Index i) { return static_cast<double>(i); })
                   : Tensor();
  const auto rounded = [](double x) {
    return static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(x))));
  };
  const auto as_factor = [&](W x) {
    return to_bf16 == ToBf16::factors ? static_cast<W>(rounded(static_cast<double>(x))) : x;
  };
  const LeftIn left_in(c.options, in);
  const W scale = c.weight.defined() ? W(1) : static_cast<W>(attention_scale(c.options, D));
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / (H * T), h = row / T % H, t = row % T, g = h / (H / G);
    const Index at_t = (b * T + t) * H + h, own = c.relative.defined() && c.relative.size(0) > 1 ? h : 0;
    const auto at_s = [&](Index s) { return (b * S + s) * G + g; };
    const auto entry = [&](Index s) {
      return own * (2 * c.reach + 1) + s - position_of(c.options, b, t, T, S) + c.reach;
    };
    const Index head = c.parameter.defined() && c.parameter.elements() > 1 ? h : 0;
    std::vector<W> w(static_cast<std::size_t>(S)), raw(w);
    std::vector<std::size_t> seen;
    W most = -std::numeric_limits<W>::infinity(), total = 0, delta = 0;
    for (Index s = 0; s < S; ++s) {
      if (!left_in(b, h, t, s)) continue;
      const auto i = static_cast<std::size_t>(s);
      for (Index d = 0; d < D; ++d) {
        const W q = of(in.query, at_t * D + d), k = of(in.key, at_s(s) * D + d);
        raw[i] += c.weight.defined() ? of(c.weight, h * D + d) * std::tanh(q + k) : scale * q * k;
      }
      w[i] = apply(c.function, raw[i], c.parameter.defined() ? of(c.parameter, head) : W(1)).value;
      if (c.relative.defined()) w[i] += of(c.relative, entry(s));
      if (c.has_bias()) w[i] += static_cast<W>(broadcast_at(c.options.mask, scores, row * S + s));
      most = std::max(most, w[i]);
      seen.push_back(i);
    }
    if (seen.empty()) continue;
    if (c.sinks.defined()) total = std::exp(of(c.sinks, h) - most);
    for (const std::size_t i : seen) total += std::exp(w[i] - most);
    for (const std::size_t i : seen) {
      w[i] = c.is_sigmoid() ? 1 / (1 + std::exp(-w[i])) : std::exp(w[i] - most) / total;
      const auto s = static_cast<Index>(i);
      for (Index e = 0; e < E; ++e)
        add(y, at_t * E + e, of(kept, row * S + s) * as_factor(w[i]) * of(in.value, at_s(s) * E + e));
    }
    for (Index e = 0; e < E; ++e) {
      if (!seed.defined()) continue;
      if (to_bf16 != ToBf16::nothing) y.data<double>()[at_t * E + e] = rounded(y.at(at_t * E + e));
      if (!c.is_sigmoid()) delta += of(y, at_t * E + e) * of(seed, at_t * E + e);
    }
    if (!seed.defined()) continue;
    if (c.sinks.defined()) add(dsinks, h, -std::exp(of(c.sinks, h) - most) / total * delta);
    for (const std::size_t i : seen) {
      const auto s = static_cast<Index>(i);
      const W keep = of(kept, row * S + s);
      W dw = 0;
      for (Index e = 0; e < E; ++e) {
        dw += keep * of(seed, at_t * E + e) * of(in.value, at_s(s) * E + e);
        add(dv, at_s(s) * E + e, keep * as_factor(w[i]) * of(seed, at_t * E + e));
      }
      const W dz = c.is_sigmoid() ? w[i] * (1 - w[i]) * dw : w[i] * (dw - delta);
      const auto f = apply(c.function, raw[i], c.parameter.defined() ? of(c.parameter, head) : W(1));
      if (c.relative.defined()) add(drelative, entry(s), dz);
      if (c.parameter.defined()) add(dparameter, head, dz * f.by_parameter);
      if (c.has_bias()) add(dbias, static_cast<Index>(broadcast_at(of_bias, scores, row * S + s)), dz);
      const W ds = as_factor(dz * f.by_score);
      for (Index d = 0; d < D; ++d) {
        const W q = of(in.query, at_t * D + d), k = of(in.key, at_s(s) * D + d);
        if (c.weight.defined()) {
          const W u = std::tanh(q + k), slope = ds * of(c.weight, h * D + d) * (1 - u * u);
          add(dq, at_t * D + d, slope), add(dk, at_s(s) * D + d, slope), add(dweight, h * D + d, ds * u);
        } else {
          add(dq, at_t * D + d, scale * ds * k), add(dk, at_s(s) * D + d, scale * ds * q);
        }
      }
    }
  }
  return {{"y", y},
          {"dquery", dq},
          {"dkey", dk},
          {"dvalue", dv},
          {"dweight", dweight},
          {"dbias", dbias},
          {"drelative", drelative},
          {"dparameter", dparameter},
          {"dsinks", dsinks}};
}

/// The same by the kernels for GPUs, where T is of `type`. Memory for gradients holds `old`, to which they
/// are added if it is a number.
template <class T>
NamedTensors modified_by_kernels_of(const ModifiedAttention& c, const Tensor& seed, DType type, double old) {
  using W = kernels::Wide<T>;
  const AttentionInputs& in = c.in;
  const DType of_sums = wide(type);
  const auto there = [&](const Tensor& x, DType as) { return x.defined() ? on_gpu(x.to(as)) : Tensor(); };
  const auto room = [&](const Tensor& like, DType as) {
    return like.defined() ? there(Tensor::full(like.shape(), old, DType::f64, Device::cpu()), as) : Tensor();
  };
  const Tensor query = there(in.query, type), key = there(in.key, type), value = there(in.value, type),
               dy = there(seed, type), weight = there(c.weight, type),
               parameter = there(c.parameter, of_sums), relative = there(c.relative, of_sums),
               sinks = there(c.sinks, of_sums);
  const Index B = in.B(), rows = in.T();
  AttentionPlan plan = plan_attention({B, rows, in.S(), in.H(), in.G(), in.query.size(3), in.value.size(3)},
                                      options_on_gpu(c.options, type), Device::cuda());
  kernels::AttentionShape& s = plan.shape;
  s.function = c.function, s.weighting = c.weighting, s.reach = c.reach;
  if (c.weight.defined()) s.scale = 1;
  if (parameter.defined() && parameter.elements() > 1) s.parameter_stride = 1;
  if (relative.defined() && relative.size(0) > 1) s.relative_stride = relative.size(1);
  std::vector<std::int32_t> positions;
  for (Index row = 0; row < B * rows; ++row)
    positions.push_back(
        static_cast<std::int32_t>(position_of(c.options, row / rows, row % rows, rows, in.S())));
  const Tensor positions_bt = on_gpu(Tensor::from(positions, Shape{B, rows}));
  s.positions = positions_bt.address<std::int32_t>();
  const auto at = [](const Tensor& x) { return x.defined() ? x.address<W>() : nullptr; };
  const auto narrow = [](const Tensor& x) { return x.defined() ? x.address<T>() : nullptr; };
  const kernels::AttentionOperands<T> x{narrow(query),   narrow(key),  narrow(value), narrow(weight),
                                        at(plan.bias()), at(relative), at(parameter), at(sinks)};
  const Tensor y =
      there(Tensor::full({B, rows, in.H(), in.value.size(3)}, kNan, DType::f64, Device::cpu()), type);
  const Tensor dquery = room(in.query, type), dkey = room(in.key, type), dvalue = room(in.value, type),
               dweight = room(c.weight, of_sums),
               dbias = room(plan.bias().defined() ? c.options.mask : Tensor(), of_sums),
               drelative = room(c.relative, of_sums), dparameter = room(c.parameter, of_sums),
               dsinks = room(c.sinks, of_sums);
  const Tensor log_sum = Tensor::empty({B, in.H(), rows}, of_sums, Device::cuda());
  const kernels::Cuda on{0};
  const bool add = !std::isnan(old);
  kernels::attention_forward(on, s, x, narrow(y), at(log_sum));
  if (!seed.defined()) return {{"y", readable(y)}};
  kernels::attention_backward(
      on, s, x, narrow(y), at(log_sum), narrow(dy),
      {{narrow(dquery), add}, {narrow(dkey), add}, {narrow(dvalue), add}, {at(dweight), add}});
  kernels::attention_score_gradients(
      on, s, x, narrow(y), at(log_sum), narrow(dy),
      {{at(dbias), add}, {at(drelative), add}, {at(dparameter), add}, {at(dsinks), add}});
  NamedTensors all{{"y", y},
                   {"dquery", dquery},
                   {"dkey", dkey},
                   {"dvalue", dvalue},
                   {"dweight", dweight},
                   {"dbias", dbias},
                   {"drelative", drelative},
                   {"dparameter", dparameter},
                   {"dsinks", dsinks}};
  for (auto& [name, tensor] : all) tensor = tensor.defined() ? readable(tensor) : tensor;
  return all;
}

inline NamedTensors modified_by_kernels(const ModifiedAttention& c, const Tensor& seed, DType type,
                                        double old = kNan) {
  if (type == DType::f64) return modified_by_kernels_of<double>(c, seed, type, old);
  if (type == DType::f32) return modified_by_kernels_of<float>(c, seed, type, old);
  return modified_by_kernels_of<BFloat16>(c, seed, type, old);
}

}  // namespace tapeformer
