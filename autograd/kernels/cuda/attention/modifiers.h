#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/operands.h>
#include <tapeformer/autograd/kernels/cuda/unary.h>
#include <tapeformer/autograd/kernels/score_functions.h>

namespace tapeformer::kernels {

/// The same scores, changed before they become weights as ops/attention.h says. Without changes the kernels
/// are compiled without them.
template <class Scores>
struct Modified : Scores {
  static constexpr bool kIsModified = true;
};

template <class T>
bool modifies(const AttentionShape& s, const AttentionOperands<T>& x) {
  return s.function != ScoreFunction::none || s.weighting != AttentionWeighting::softmax ||
         x.relative != nullptr || x.sinks != nullptr;
}

/// What a pair's gradient is of.
enum class GradientOf {
  score,      // query . key, before anything is done to it
  biases,     // the score as it becomes a weight, and so all that is added to it
  parameter,  // of the function, this pair's part
};

/// Replaces scores by their function, and `slopes` by its derivative.
template <GradientOf kOf, class T, class W, int kCount>
__device__ void apply_function(const AttentionShape& s, const AttentionOperands<T>& x, Index head,
                               W (&scores)[kCount][kCount], W (&slopes)[kCount][kCount]) {
  const W parameter = x.parameter != nullptr ? x.parameter[head * s.parameter_stride] : W(0);
  with_function(s.function, [&](auto function) {
    for (int i = 0; i < kCount; ++i) {
      for (int j = 0; j < kCount; ++j) {
        const W score = scores[i][j], value = function.value(score, parameter);
        scores[i][j] = value;
        if constexpr (kOf == GradientOf::biases) continue;
        const ScoreSlopes<W> both = function.slopes(score, parameter, value);
        slopes[i][j] = kOf == GradientOf::score ? both.by_score : both.by_parameter;
      }
    }
  });
}

/// Of a pair that the ranges of keys leave in.
template <class T>
__device__ Wide<T> relative_bias_at(const AttentionShape& s, const AttentionOperands<T>& x, Index b,
                                    Index head, Index query, Index key) {
  const Index after = key - s.positions[b * s.queries + query];
  return x.relative[head * s.relative_stride + after + s.reach];
}

template <class W>
__device__ W sigmoid(W score) {
  return W(1) / (W(1) + exp(-score));
}

}  // namespace tapeformer::kernels
