#pragma once

#include <tapeformer/autograd/kernels/unary_functions.h>

#include <cstddef>
#include <cstdint>
#include <utility>

/// Functions of attention's scores, each with one parameter, for all heads or for each. To add one: an entry
/// of ScoreFunction, and its ScoreFunctor below; the kernels for CPU and GPU, the gradients, the composed
/// form and the checks follow. If it needs arithmetic that Math lacks, see unary_functions.h. Its test needs
/// a formula in tests/autograd/ops/attention_modifiers.h.
namespace tapeformer::kernels {

enum class ScoreFunction : std::uint8_t {
  none,
  softcap,
  count,  // of the functions above
};

/// How scores become weights.
enum class AttentionWeighting : std::uint8_t {
  softmax,  ///< exp(z) / sum exp(z), over the keys that a query sees
  sigmoid,  ///< 1 / (1 + exp(-z)), each by itself; Ramapuram et al. 2024, arXiv:2409.04431
};

/// The derivatives of a function's value.
template <class V>
struct ScoreSlopes {
  V by_score, by_parameter;
};

/// value(score, parameter) on V (see Math), and its derivatives slopes(score, parameter, value), which are
/// not compiled for Tensors. Scores of masked pairs may be anything; their values are not used.
template <ScoreFunction f>
struct ScoreFunctor;

template <>
struct ScoreFunctor<ScoreFunction::none> {
  static constexpr const char* name = "none";
  template <class V>
  TAPEFORMER_HOST_DEVICE static V value(const V& score, const V&) {
    return score;
  }
  template <class V>
  TAPEFORMER_HOST_DEVICE static ScoreSlopes<V> slopes(const V&, const V&, const V&) {
    return {Math<V>::constant(1), Math<V>::constant(0)};
  }
};

/// c tanh(score / c), which stays within +-c and close to the score around 0; c > 0.
/// Source:  Gemma Team 2024, arXiv:2408.00118, section 2
template <>
struct ScoreFunctor<ScoreFunction::softcap> {
  static constexpr const char* name = "softcap";
  template <class V>
  TAPEFORMER_HOST_DEVICE static V value(const V& score, const V& c) {
    return c * Math<V>::tanh(score / c);
  }
  template <class V, class M = Math<V>>
  TAPEFORMER_HOST_DEVICE static ScoreSlopes<V> slopes(const V& score, const V& c, const V& value) {
    const V t = value / c, slope = M::one_minus_square(t);
    return {slope, M::fma(-score / c, slope, t)};
  }
};

/// Expands to one term for each function, whose number is i.
using EachScoreFunction = std::make_index_sequence<static_cast<std::size_t>(ScoreFunction::count)>;

template <class Use, std::size_t... i>
TAPEFORMER_HOST_DEVICE constexpr void with_function(ScoreFunction f, const Use& use,
                                                    std::index_sequence<i...>) {
  (void)((f == static_cast<ScoreFunction>(i) && (use(ScoreFunctor<static_cast<ScoreFunction>(i)>{}), true)) ||
         ...);
}
/// Calls `use` with f's ScoreFunctor.
template <class Use>
TAPEFORMER_HOST_DEVICE constexpr void with_function(ScoreFunction f, const Use& use) {
  with_function(f, use, EachScoreFunction{});
}

}  // namespace tapeformer::kernels
