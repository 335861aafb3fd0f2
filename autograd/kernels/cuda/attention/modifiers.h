#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/paths.h>
#include <tapeformer/autograd/kernels/cuda/unary.h>

namespace tapeformer::kernels {

#if !defined(__CUDACC__)
/// Checks its pointers as if each were an argument.
template <class T>
void require_argument(const char* kernel, cudaStream_t stream, const AttentionOperands<T>& x) {
  for (const void* pointer : std::initializer_list<const void*>{x.query, x.key, x.value, x.weight, x.bias,
                                                                x.relative, x.parameter, x.sinks})
    emulator::require_device_memory(kernel, stream, pointer, 0);
}
#endif

/// The same scores, changed before they become weights as ops/attention.h says. Without changes the kernels
/// are compiled without them.
template <class Scores>
struct Modified : Scores {
  static constexpr bool kIsModified = true;
};

/// The value that a pair's gradient belongs to.
enum class GradientOf {
  score,      // the scaled one, before its function
  biases,     // the score as it becomes a weight, and so all that is added to it
  parameter,  // of the function, this pair's part
};

template <class W>
__device__ W parameter_of(const AttentionShape& s, const W* parameter, Index head) {
  return parameter != nullptr ? parameter[head * s.parameter_stride] : W(0);
}

/// Replaces scores by their function and, but for biases, `slopes` by its derivatives by what kOf names.
template <GradientOf kOf, class T, class W, int kCount>
__device__ void apply_function(const AttentionShape& s, const AttentionOperands<T>& x, Index head,
                               W (&scores)[kCount][kCount], W (&slopes)[kCount][kCount]) {
  const W parameter = parameter_of(s, x.parameter, head);
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

/// The relative biases of a query, by key; only the keys of its range have one.
template <class W>
__device__ const W* relative_row(const AttentionShape& s, const W* relative, Index b, Index head,
                                 Index query) {
  const Index position = query < s.queries ? s.positions[b * s.queries + query] : 0;
  return relative + head * s.relative_stride + s.reach - position;
}

/// Adds a sink to a row's `total`, the sum of exponential(score - largest), and to `largest`. Returns the
/// factor of earlier sums. Rows that see nothing have no sink.
template <class W, class F>
__device__ W add_sink(W sink, W& largest, W& total, F&& exponential) {
  if (total == W(0)) return W(1);
  const W most = max(largest, sink), shrink = exponential(largest - most);
  total = total * shrink + exponential(sink - most);
  largest = most;
  return shrink;
}

template <class W>
__device__ W sigmoid(W score) {
  return W(1) / (W(1) + exp(-score));
}

}  // namespace tapeformer::kernels
