#pragma once

#include <tapeformer/tests/autograd/kernels/attention_forward_case.h>
#include <tapeformer/tests/autograd/kernels/modified_attention.h>

#include <algorithm>
#include <string>

namespace tapeformer {

/// What may be done to scores, each alone or with others.
struct Modifiers {
  kernels::ScoreFunction function = kernels::ScoreFunction::none;
  kernels::AttentionWeighting weighting = kernels::AttentionWeighting::softmax;
  bool of_heads = false;  // a parameter and a relative bias for each
  bool has_relative = false, has_sinks = false, is_additive = false;
};

/// All the rest is the problem's, whose sizes it changes only if it has to.
inline ModifiedAttention modified(const AttentionCase& plain, const Modifiers& m, Generator& random,
                                  DType type) {
  ModifiedAttention c;
  static_cast<AttentionCase&>(c) = plain;
  c.in = as_type(on_cpu(plain.in), type);
  c.function = m.function, c.weighting = m.weighting;
  const Index H = c.in.H();
  const auto numbers = [&](const Tensor& x) { return as_type(x, wide(type)); };
  if (c.has_bias()) c.options.mask = numbers(c.options.mask);
  if (m.function != kernels::ScoreFunction::none)
    c.parameter = numbers(random_uniform({m.of_heads ? H : 1}, 0.5, 2, random));
  if (m.has_relative) {
    c.reach = std::max<Index>({c.in.T(), c.in.S(), 1}) - 1 + random.below(3);
    c.relative = numbers(random_normal({m.of_heads ? H : 1, 2 * c.reach + 1}, random));
  }
  if (m.has_sinks) c.sinks = numbers(random_normal({H}, random));
  if (m.is_additive) c.weight = as_type(random_normal({H, c.in.query.size(3)}, random), type);
  return c;
}

inline Tensor seed_of(const ModifiedAttention& c, Generator& random, DType type) {
  return as_type(random_normal({c.in.B(), c.in.T(), c.in.H(), c.in.value.size(3)}, random), type);
}

inline AttentionCase case_on_cpu(Index B, Index T, Index S, Index H, Index G, Index D, Index E,
                                 Generator& random) {
  AttentionCase c = simple_case(B, T, S, H, G, D, E, random);
  c.in = on_cpu(c.in);
  return c;
}

// function, weighting, of_heads, has_relative, has_sinks
inline constexpr Modifiers kEach[] = {
    {kernels::ScoreFunction::softcap},
    {kernels::ScoreFunction::scaled, kernels::AttentionWeighting::softmax, true},
    {kernels::ScoreFunction::none, kernels::AttentionWeighting::softmax, true, true},
    {kernels::ScoreFunction::none, kernels::AttentionWeighting::softmax, false, true},
    {kernels::ScoreFunction::none, kernels::AttentionWeighting::softmax, false, false, true},
    {kernels::ScoreFunction::none, kernels::AttentionWeighting::sigmoid},
    {kernels::ScoreFunction::softcap, kernels::AttentionWeighting::softmax, true, true, true},
    {kernels::ScoreFunction::softcap, kernels::AttentionWeighting::sigmoid, true, true}};

inline std::string described(const Modifiers& m) {
  return "function " + std::to_string(static_cast<int>(m.function)) +
         (m.weighting == kernels::AttentionWeighting::sigmoid ? " sigmoid" : "") +
         (m.of_heads ? " of heads" : "") + (m.has_relative ? " relative" : "") +
         (m.has_sinks ? " sinks" : "");
}

}  // namespace tapeformer
