// Tiles: attention that never holds the whole matrix of weights.
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/guide/show.h>

#include <algorithm>

using namespace tapeformer;

/// sum softmax(scores) values, with one look at each score and three numbers in hand.
double online_softmax(const std::vector<double>& scores, const std::vector<double>& values) {
  double largest = -INFINITY, total = 0, mixture = 0;
  for (std::size_t s = 0; s < scores.size(); ++s) {
    const double before = largest;
    largest = std::max(largest, scores[s]);
    const double shrink = std::exp(before - largest);  // what is held was relative to a smaller maximum
    total = total * shrink + std::exp(scores[s] - largest);
    mixture = mixture * shrink + std::exp(scores[s] - largest) * values[s];
  }
  return mixture / total;
}

/// Bytes that a tape keeps for the backward pass of attention over T tokens.
template <class F>
double saved_mebibytes(Index T, const F& attention) {
  Generator random(1);
  const Tensor q = Tensor::randn({1, T, 4, 32}, random), k = Tensor::randn({1, T, 4, 32}, random),
               v = Tensor::randn({1, T, 4, 32}, random);
  Tape tape;
  for (const Tensor& x : {q, k, v}) tape.watch(x);
  attention(q, k, v, AttentionOptions());
  return static_cast<double>(tape.memory().saved_bytes) / (1 << 20);
}

int main() {
  const std::vector<double> scores = {1, 700, 699, -3, 702}, values = {5, 1, 2, 9, 3};
  std::printf("one pass: %.6f\n", online_softmax(scores, values));
  const double e1 = std::exp(-2.), e2 = std::exp(-3.);
  std::printf("by hand:  %.6f\n\n", (3 + 1 * e1 + 2 * e2) / (1 + e1 + e2));

  std::printf("%6s %20s %20s\n", "T", "with the matrix, MiB", "in tiles, MiB");
  for (const Index T : {128, 256, 512, 1024})
    std::printf("%6d %20.1f %20.1f\n", static_cast<int>(T), saved_mebibytes(T, composed_attention),
                saved_mebibytes(T, scaled_dot_product_attention));
}
