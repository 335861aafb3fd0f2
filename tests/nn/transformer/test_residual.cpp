#include <tapeformer/nn/norm.h>
#include <tapeformer/nn/transformer/residual.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

namespace {

struct Parts {
  explicit Parts(double probability)
      : random(3),
        layer(LayerNormConfig{8, 1e-5, true}),
        rms(NormConfig{NormKind::rms, 8, 1e-6, false}),
        dropout(DropoutConfig{probability}, random) {
    randomise(layer, 1);
    randomise(rms, 2);
  }
  Generator random;
  LayerNorm layer;
  Norm rms;
  Dropout dropout;
};

Tensor input(std::uint64_t seed) { return random_values({2, 3, 8}, seed, DType::f32); }

}  // namespace

TEST_CASE("what a sublayer adds is scaled after its norm") {
  const Parts parts(0);
  ResidualStream stream(input(1));
  const auto triple = [](const Tensor& x) { return x * 3.0; };
  residual("triple", stream, NormPlace::branch, parts.rms, parts.dropout, triple, 0.25);
  CHECK(same_bits(stream.sum(), input(1) + parts.rms(input(1) * 3.0) * 0.25));
}

TEST_CASE("a stream is the sums and norms of its steps to the last bit, with the same draws") {
  for (const double probability : {0.0, 0.4}) {
    const Parts parts(probability), plain(probability);
    ResidualStream stream(input(1));
    CHECK(same_bits(stream.normed(parts.layer), parts.layer(input(1))));
    stream.add(input(2), parts.dropout);
    stream.add(input(3), parts.dropout);  // before a norm took the pending sum
    Tensor sum = input(1) + plain.dropout(input(2));
    sum = sum + plain.dropout(input(3));
    CHECK(same_bits(stream.normed(parts.layer), plain.layer(sum)));
    CHECK(same_bits(stream.sum(), sum));
    stream.add(input(4), parts.dropout);
    sum = sum + plain.dropout(input(4));
    CHECK(same_bits(stream.normed(parts.rms), plain.rms(sum)));
    stream.add(input(5), parts.dropout);
    sum = sum + plain.dropout(input(5));
    CHECK(same_bits(stream.sum(), sum));
  }
}
