#include <tapeformer/nn/norm.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

namespace {

/// Both with the same random parameters.
template <class A, class B>
void randomise_alike(A& a, B& b) {
  a.to(DType::f64);
  b.to(DType::f64);
  randomise(a, 5);
  randomise(b, 5);
}

}  // namespace

TEST_CASE("it is LayerNorm or RmsNorm, with the width, epsilon and bias that it is given") {
  const Tensor x = random_values({2, 3, 7}, 6);
  for (const double epsilon : {1e-5, 0.5}) {
    for (const bool bias : {true, false}) {
      Norm norm({NormKind::layer, 7, epsilon, bias});
      LayerNorm layer({7, epsilon, bias});
      randomise_alike(norm, layer);
      CHECK(same_bits(norm(x), layer(x)));
      CHECK(norm.parameter_count() == (bias ? 14 : 7));
      Norm rms({NormKind::rms, 7, epsilon, bias});
      RmsNorm expected({7, epsilon});
      randomise_alike(rms, expected);
      CHECK(same_bits(rms(x), expected(x)));
      CHECK(rms.parameter_count() == 7);
      for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
        Norm with_gain({kind, 7, epsilon, false}), without({kind, 7, epsilon, false, false});
        with_gain.to(DType::f64);
        CHECK(same_bits(without(x), with_gain(x)));
        CHECK(same_bits(without(x, x, {}).y, with_gain(x, x, {}).y));
        CHECK(without.parameter_count() == 0);
      }
    }
  }
}
