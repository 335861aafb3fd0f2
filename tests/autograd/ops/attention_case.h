#pragma once

#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/ops/attention_modifiers.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {

struct AttentionInputs {
  Tensor query, key, value;
  std::vector<Tensor> list() const { return {query, key, value}; }
  Index B() const { return query.size(0); }
  Index T() const { return query.size(1); }
  Index H() const { return query.size(2); }
  Index S() const { return key.size(1); }
  Index G() const { return key.size(2); }
};

inline AttentionInputs random_inputs(Index B, Index T, Index S, Index H, Index G, Index D, Index E,
                                     Generator& random) {
  return {random_normal({B, T, H, D}, random), random_normal({B, S, G, D}, random),
          random_normal({B, S, G, E}, random)};
}

/// The projection that holds the three side by side.
inline Tensor pack(const std::vector<Tensor>& parts) {
  TensorList flat;
  for (const Tensor& x : parts)
    flat.push_back(reshape(x, Shape{x.size(0), x.size(1), x.size(2) * x.size(3)}));
  return concat(flat, 2);
}

inline PackedHeads heads_of(const AttentionInputs& in) {
  return {in.H(), in.G(), in.query.size(3), in.value.size(3)};
}

inline AttentionInputs on_cpu(const AttentionInputs& in) {
  return {in.query.to(Device::cpu()), in.key.to(Device::cpu()), in.value.to(Device::cpu())};
}

/// Rounded to `type`, in f64.
inline Tensor as_type(const Tensor& x, DType type) { return x.to(Device::cpu()).to(type).to(DType::f64); }
inline AttentionInputs as_type(const AttentionInputs& in, DType type) {
  const Tensor key = as_type(in.key, type);
  return {as_type(in.query, type), key, in.value.state() == in.key.state() ? key : as_type(in.value, type)};
}

inline AttentionMasks causal_masks() {
  AttentionMasks masks;
  masks.causal = true;
  return masks;
}

/// A window, prefixes, lengths, padding and none of them, for two rows of 23 tokens, in both directions.
inline std::vector<AttentionMasks> masks_of_23_tokens() {
  std::vector<int> real(46, 1);
  std::fill(real.begin() + 17, real.begin() + 29, 0);  // the end of a row and the start of the other
  std::vector<AttentionMasks> all(7, causal_masks());
  all[0].window_before = 13;
  all[1].prefix_lengths = integers({7, 12}, {2});
  for (const std::size_t i : {2, 3}) all[i].key_lengths = integers({23, 14}, {2});
  for (const std::size_t i : {4, 5}) all[i].key_mask = all[i].query_mask = booleans(real, {2, 23});
  for (const std::size_t i : {2, 4, 6}) all[i].causal = false;
  return all;
}

inline AttentionOptions moved(AttentionOptions options, Device device) {
  for (Tensor* x : {&options.mask, &options.key_mask, &options.query_mask, &options.prefix_lengths,
                    &options.key_lengths, &options.query_starts, &options.key_starts,
                    &options.score_parameter, &options.relative_bias, &options.sinks}) {
    if (x->defined()) *x = x->to(device);
  }
  return options;
}

/// The sequence that a query belongs to: its number, its keys [first, first + keys), and the query's position
/// among those.
struct QueryPlace {
  Index sequence, first, keys, position;
};
inline QueryPlace place_of(const AttentionMasks& masks, Index b, Index t, Index T, Index S) {
  QueryPlace place{b, 0, S, 0};
  if (masks.query_starts.defined()) {
    const Tensor& key_starts = masks.key_starts.defined() ? masks.key_starts : masks.query_starts;
    const auto start = [](const Tensor& starts, Index i) { return static_cast<Index>(starts.at(i)); };
    Index& i = place.sequence = 0;
    while (t >= start(masks.query_starts, i + 1)) ++i;
    place.first = start(key_starts, i);
    t -= start(masks.query_starts, i);
    T = start(masks.query_starts, i + 1) - start(masks.query_starts, i);
    place.keys = start(key_starts, i + 1) - place.first;
  }
  if (masks.key_lengths.defined()) place.keys = static_cast<Index>(masks.key_lengths.at(place.sequence));
  place.position = masks.alignment == CausalAlignment::top_left ? t : t + place.keys - T;
  return place;
}

/// The documentation of AttentionMasks, word for word: may query t of head h attend to key s?
class LeftIn {
 public:
  LeftIn(const AttentionMasks& masks, const AttentionInputs& in) : H_(in.H()), T_(in.T()), S_(in.S()) {
    const Shape scores{in.B(), H_, T_, S_};
    pairs_.resize(static_cast<std::size_t>(scores.elements()));
    const double left_out = masks.mask.defined() && masks.mask.dtype() == DType::boolean ? 0 : -kInfinity;
    for (Index b = 0; b < in.B(); ++b) {
      for (Index t = 0; t < T_; ++t) {
        const std::vector<bool> seen = keys_of(masks, b, t);
        for (Index h = 0; h < H_; ++h) {
          for (Index s = 0; s < S_; ++s) {
            const Index pair = ((b * H_ + h) * T_ + t) * S_ + s;
            pairs_[static_cast<std::size_t>(pair)] =
                seen[static_cast<std::size_t>(s)] &&
                (!masks.mask.defined() || broadcast_at(masks.mask, scores, pair) != left_out);
          }
        }
      }
    }
  }
  bool operator()(Index b, Index h, Index t, Index s) const {
    return pairs_[static_cast<std::size_t>(((b * H_ + h) * T_ + t) * S_ + s)];
  }

 private:
  /// The keys that query (b, t) sees, apart from the mask.
  std::vector<bool> keys_of(const AttentionMasks& masks, Index b, Index t) const {
    std::vector<bool> seen(static_cast<std::size_t>(S_));
    if (masks.query_mask.defined() && masks.query_mask.at(b * T_ + t) == 0) return seen;
    const auto [sequence, first, keys, p] = place_of(masks, b, t, T_, S_);
    const Index prefix =
        masks.prefix_lengths.defined() ? static_cast<Index>(masks.prefix_lengths.at(sequence)) : 0;
    for (Index s = 0; s < keys; ++s) {
      seen[static_cast<std::size_t>(first + s)] =
          (!masks.causal || s <= p || s < prefix) &&
          (masks.window_before < 0 || s >= p - masks.window_before) &&
          (masks.window_after < 0 || s <= p + masks.window_after) &&
          (!masks.key_mask.defined() || masks.key_mask.at(b * S_ + first + s) != 0);
    }
    return seen;
  }

  Index H_, T_, S_;
  std::vector<bool> pairs_;  // [B, H, T, S]
};

/// Attention and its gradients in plain loops, pair by pair; `dscores` [B, H, T, S] is that of raw scores,
/// and `dvalues` that of their function, to which biases are added. `modifiers` are the gradients of
/// modifiers_of(options).
struct AttentionOracle : OpResult {
  Tensor weights, dscores, dvalues;
  std::vector<Tensor> modifiers;
};

/// `raw` [B, H, T, S], if defined, are scores that are not products: queries and keys then get no gradient.
inline AttentionOracle attention_oracle(const AttentionInputs& inputs, const AttentionOptions& all_options,
                                        const Tensor& seed, const Tensor& raw = {}) {
  const AttentionInputs in = on_cpu(inputs);
  const AttentionOptions options = moved(all_options, Device::cpu());
  const Tensor dy = seed.to(Device::cpu());
  const Index B = in.B(), T = in.T(), H = in.H(), S = in.S(), G = in.G();
  const Index D = raw.defined() ? 0 : in.query.size(3), E = in.value.size(3);
  const Shape scores{B, H, T, S};
  AttentionOracle result;
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f64, Device::cpu()); };
  result.y = zeros({B, T, H, E});
  result.weights = zeros(scores), result.dscores = zeros(scores), result.dvalues = zeros(scores);
  for (const Tensor& x : in.list()) result.gradients.push_back(zeros(x.shape()));
  ModifierSums sums(options, scores);
  const Tensor kept = dropout(Tensor::full(scores, 1, DType::f64, Device::cpu()), options.dropout,
                              options.dropout_key);  // 0 or 1 / (1 - p)
  const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(D));
  double *y = result.y.data<double>(), *dq = result.gradients[0].data<double>();
  double *dk = result.gradients[1].data<double>(), *dv = result.gradients[2].data<double>();
  const double *query = in.query.data<double>(), *key = in.key.data<double>(),
               *value = in.value.data<double>();
  const double* seed_at = dy.data<double>();
  const LeftIn left_in(options, in);
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / (H * T), h = row / T % H, t = row % T, g = h / (H / G);
    const auto at_t = [&](Index width) { return ((b * T + t) * H + h) * width; };
    const auto at_s = [&](Index s, Index width) { return ((b * S + s) * G + g) * width; };
    double *w = result.weights.data<double>() + row * S, *ds = result.dscores.data<double>() + row * S,
           *dz = result.dvalues.data<double>() + row * S;
    const QueryPlace place = place_of(options, b, t, T, S);
    std::vector<Index> seen;
    std::vector<ScoreValue> function(static_cast<std::size_t>(S));
    const double sink = options.sinks.defined() ? options.sinks.at(h) : -kInfinity;
    double most = sink;
    for (Index s = 0; s < S; ++s) {
      if (!left_in(b, h, t, s)) continue;
      double score = raw.defined() ? raw.at(row * S + s) : 0;
      for (Index d = 0; d < D; ++d) score += scale * query[at_t(D) + d] * key[at_s(s, D) + d];
      function[static_cast<std::size_t>(s)] = score_value(options, h, score);
      const double z = function[static_cast<std::size_t>(s)].value +
                       added_at(options, scores, row * S + s, s - place.first - place.position);
      w[s] = z;
      most = std::max(most, z);
      seen.push_back(s);
    }
    const bool is_softmax = options.weighting == AttentionWeighting::softmax;
    double total = seen.empty() ? 1 : std::exp(sink - most), product = 0;
    for (const Index s : seen) {
      if (is_softmax)
        total += w[s] = std::exp(w[s] - most);
      else
        w[s] = 1 / (1 + std::exp(-w[s])), total = 1;
    }
    for (const Index s : seen) {
      w[s] /= total;
      const double keep = kept.at(row * S + s);
      for (Index e = 0; e < E; ++e) {
        y[at_t(E) + e] += keep * w[s] * value[at_s(s, E) + e];
        dv[at_s(s, E) + e] += keep * w[s] * seed_at[at_t(E) + e];
        dz[s] += keep * seed_at[at_t(E) + e] * value[at_s(s, E) + e];
      }
      product += w[s] * dz[s];
    }
    for (const Index s : seen) {
      const ScoreValue& f = function[static_cast<std::size_t>(s)];
      dz[s] = w[s] * (is_softmax ? dz[s] - product : (1 - w[s]) * dz[s]);
      ds[s] = f.by_score * dz[s];
      sums.add(row * S + s, s - place.first - place.position, dz[s], f.by_parameter * dz[s]);
      for (Index d = 0; d < D; ++d) {
        dq[at_t(D) + d] += scale * ds[s] * key[at_s(s, D) + d];
        dk[at_s(s, D) + d] += scale * ds[s] * query[at_t(D) + d];
      }
    }
    if (!seen.empty()) sums.add_sink(h, -std::exp(sink - most) / total * product);
  }
  result.modifiers = sums.list();
  return result;
}

using AttentionFunction = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&);
inline constexpr AttentionFunction kAttentionPaths[] = {scaled_dot_product_attention, composed_attention};

/// The operation; inputs after query, key and value replace modifiers_of(options); without them, those of the
/// options are converted.
inline Op attention_by(AttentionFunction function, const AttentionOptions& options) {
  return [=](const std::vector<Tensor>& in) {
    return function(in[0], in[1], in[2], with_modifiers(options, in, 3));
  };
}

inline double largest(const Tensor& x) { return absolute_error(x, Tensor::zeros(x.shape(), x.dtype())); }

/// The worst error of y and the gradients, each max |a - b| over max |b|. The error of a gradient below
/// `least` of the largest one, which cancels in theory (dq where one key is seen), is relative to that.
inline double attention_error(const OpResult& got, const OpResult& expected, double least = 1e-9) {
  double worst = relative_error(got.y, expected.y), most = 0;
  for (const Tensor& dx : expected.gradients) most = std::max(most, largest(dx));
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    const double error = absolute_error(got.gradients[i], expected.gradients[i]);
    if (error == 0) continue;
    const double own = largest(expected.gradients[i]);
    worst = std::isnan(error) ? error : std::max(worst, error / (own > least * most ? own : most));
  }
  return worst;
}

}  // namespace tapeformer
