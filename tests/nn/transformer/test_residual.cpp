#include <tapeformer/nn/norm.h>
#include <tapeformer/nn/transformer/residual.h>
#include <tapeformer/tests/nn/module_case.h>

#include <doctest/doctest.h>

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

Tensor tripled(const Tensor& x) { return 3 * x; }

}  // namespace

TEST_SUITE("nn/transformer/residual") {
  TEST_CASE("a stream is the sums and norms of its steps to the last bit, with the same draws") {
    for (const double probability : {0.0, 0.4}) {
      const Parts parts(probability), plain(probability);
      ResidualStream stream(input(1));
      CHECK(same_bits(stream.normed(parts.layer), parts.layer(input(1))));
      stream.add(input(2), parts.dropout);
      stream.add(input(3), parts.dropout);  // before a norm took what waits
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

  TEST_CASE("sublayers before and after their norm are what the formulas say") {
    const Parts parts(0.4), plain(0.4);
    for (const bool norm_first : {true, false}) {
      CAPTURE(norm_first);
      ResidualStream stream(input(6));
      const NormPlace place = norm_first ? NormPlace::pre : NormPlace::post;
      for (int i = 0; i < 2; ++i) residual("tripled", stream, place, parts.layer, parts.dropout, tripled);
      Tensor x = input(6);
      for (int i = 0; i < 2; ++i) {
        x = norm_first ? x + plain.dropout(tripled(plain.layer(x)))
                       : plain.layer(x + plain.dropout(tripled(x)));
      }
      CHECK(same_bits(stream.sum(), x));
    }
  }
}
