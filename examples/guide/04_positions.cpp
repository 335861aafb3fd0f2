// Positions: attention by itself does not know the order of words.
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/examples/guide/show.h>
#include <tapeformer/nn/attention/basic/self_attention.h>
#include <tapeformer/nn/positions.h>

using namespace tapeformer;

constexpr Index kLength = 5, kWidth = 32;  // T, C

/// The words in reverse order.
Tensor reversed(const Tensor& x_1tc) {
  Tensor order_1tc = Tensor::empty({1, kLength, kWidth}, DType::i32);
  for (Index i = 0; i < order_1tc.elements(); ++i)
    order_1tc.data<std::int32_t>()[i] = static_cast<std::int32_t>(kLength - 1 - i / kWidth);
  return gather(x_1tc, 1, order_1tc);
}

/// The score of a query at position t and a key at position s, both rotated by their positions.
double rotary_score(const Tensor& query_111d, const Tensor& key_111d, std::int32_t t, std::int32_t s) {
  const Tensor q = rotary(query_111d, Tensor::from<std::int32_t>({t}));
  const Tensor k = rotary(key_111d, Tensor::from<std::int32_t>({s}));
  return sum(q * k).item();
}

int main() {
  Generator random(1);
  const Tensor x_1tc = Tensor::randn({1, kLength, kWidth}, random, DType::f64);
  const MatrixSelfAttention attention = [&] {
    MatrixSelfAttention made({kWidth}, random);
    made.to(DType::f64);
    return made;
  }();
  const Positions positions({PositionKind::sinusoidal, kWidth}, random);

  const auto knows_order = [&](const Tensor& forwards, const Tensor& backwards) {
    return largest_difference(reversed(attention(forwards)), attention(backwards)) > 1e-9;
  };
  std::printf("without positions, reversed words give other vectors: %s\n",
              knows_order(x_1tc, reversed(x_1tc)) ? "yes" : "no");
  std::printf("with sinusoids added, reversed words give other vectors: %s\n\n",
              knows_order(positions(x_1tc), positions(reversed(x_1tc))) ? "yes" : "no");

  const Tensor query_111d = Tensor::randn({1, 1, 1, kWidth}, random, DType::f64);
  const Tensor key_111d = Tensor::randn({1, 1, 1, kWidth}, random, DType::f64);
  std::printf("rotary: the score of one query and one key\n");
  for (const auto& [t, s] : {std::pair(3, 0), std::pair(13, 10), std::pair(5003, 5000), std::pair(5, 0)}) {
    std::printf("  at positions %4d and %4d: %6.2f\n", t, s, rotary_score(query_111d, key_111d, t, s));
  }
}
