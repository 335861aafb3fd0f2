// A function of attention's scores of your own: what the tiled kernels need to know of it.
#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/tensor_math.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>

#include <cmath>
#include <cstdio>

using namespace tapeformer;
using kernels::Math;
using kernels::ScoreSlopes;

/// score / sqrt(1 + (score / c)^2), another cap: it stays within +-c, without an exponential.
struct RootCap {
  static constexpr const char* name = "root_cap";
  template <class V, class M = Math<V>>
  TAPEFORMER_HOST_DEVICE static V value(const V& score, const V& c) {
    const V x = score / c;
    return score * M::reciprocal(M::sqrt(M::fma(x, x, M::constant(1))));
  }
  template <class V, class M = Math<V>>
  TAPEFORMER_HOST_DEVICE static ScoreSlopes<V> slopes(const V& score, const V& c, const V&) {
    const V x = score / c, share = M::reciprocal(M::sqrt(M::fma(x, x, M::constant(1))));
    const V slope = share * share * share;
    return {slope, slope * x * x * x};
  }
};

/// The largest difference between the functor's own slopes and those that the tape finds for its value.
double worst_slope(const Tensor& scores, const Tensor& c) {
  Tape tape;
  tape.watch(scores);
  tape.watch(c);
  const Tensor value = RootCap::value(scores, c);
  const ScoreSlopes<Tensor> own = RootCap::slopes(scores, c, value);
  const std::vector<Tensor> found = tape.gradients(sum(value), {scores, c});
  double worst = std::fabs(found[1].item() - sum(own.by_parameter).item());
  for (Index i = 0; i < scores.elements(); ++i)
    worst = std::fmax(worst, std::fabs(found[0].at(i) - own.by_score.at(i)));
  return worst;
}

int main() {
  Generator random(1);
  const Tensor scores = Tensor::randn({100}, random, DType::f64), cap = Tensor::full({1}, 2, DType::f64);
  const bool right =
      worst_slope(scores, cap) < 1e-13;  // a sum of 100 numbers below 1, a dozen roundings each

  const Tensor query = Tensor::randn({1, 4, 2, 3}, random, DType::f64),
               key = Tensor::randn({1, 6, 2, 3}, random, DType::f64);
  AttentionOptions options;
  options.causal = true;
  options.score_function = ScoreFunction::softcap;
  options.score_parameter = Tensor::full({2}, 1.5, DType::f64);  // one for each head, which may learn it
  const bool learns = gradcheck([&] { return scaled_dot_product_attention(query, key, key, options); },
                                {{"query", query}, {"key", key}, {"cap", options.score_parameter}})
                          .passed();
  std::printf("slopes of the functor: %s\nattention with a learned cap: %s\n", right ? "right" : "WRONG",
              learns ? "passed" : "FAILED");
  return right && learns ? 0 : 1;
}
