#include <tapeformer/autograd/ops/causal_convolution.h>
#include <tapeformer/nn/short_convolution.h>
#include <tapeformer/optim/muon_adamw.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

namespace {

constexpr Index kWidth = 5;

ShortConvolution layer_of(Index taps) {
  ShortConvolution layer({kWidth, taps});
  layer.to(DType::f64);
  randomise(layer, 3);
  return layer;
}

}  // namespace

TEST_CASE("it starts without effect, and then is the operation") {
  ShortConvolution layer({kWidth, 4});
  const Tensor x = random_values({2, 6, kWidth}, 4, DType::f32);
  CHECK(layer(x).to_vector<float>() == x.to_vector<float>());
  CHECK(layer.named_parameters()[0].first == "weight");
  CHECK(layer.parameter_count() == 4 * kWidth);
  randomise(layer, 3);
  const Tensor weight = layer.named_parameters()[0].second.value();
  CHECK(same_bits(layer(x), causal_convolution(x, weight.alias({4, kWidth}))));
}

TEST_CASE("its weight is not a matrix: it is not decayed, and Muon does not orthogonalise it") {
  ShortConvolution layer({kWidth, 4});
  layer.parameters();
  const Parameter weight = layer.named_parameters()[0].second;
  CHECK_FALSE(has_rank_two(weight));
  CHECK_FALSE(is_hidden_matrix(weight));
}

TEST_CASE("tokens taken in any portions give what they give at once, after rows have moved too") {
  const Tensor x = random_values({3, 7, kWidth}, 4);
  for (const Index taps : {1, 2, 4, 9}) {
    CAPTURE(taps);
    const ShortConvolution layer = layer_of(taps);
    const Tensor whole = layer(x);
    ConvolutionCache cache;
    for (const std::vector<Index>& portions :
         std::vector<std::vector<Index>>{{7}, {1, 1, 1, 1, 1, 1, 1}, {2, 5}, {4, 1, 2}}) {
      Index first = 0;
      for (const Index portion : portions) {
        const Tensor part = layer(slice(x, 1, first, portion), cache);
        CHECK_BELOW(relative_error(part, slice(whole, 1, first, portion)), 1e-14);
        first += portion;
      }
      CHECK(cache.bytes() == 3 * (taps - 1) * kWidth * 8);
      cache.restart();
    }
    layer(slice(x, 1, 0, 3), cache);
    cache.reorder({2, 0});
    const auto rows = [](const Tensor& of) { return concat({slice(of, 0, 2, 1), slice(of, 0, 0, 1)}, 0); };
    const Tensor rest = layer(rows(slice(x, 1, 3, 4)), cache);
    CHECK_BELOW(relative_error(rest, rows(slice(whole, 1, 3, 4))), 1e-14);
    cache.clear();
    CHECK(cache.bytes() == 0);
    CHECK_BELOW(relative_error(layer(x, cache), whole), 1e-14);
  }
}

TEST_CASE("caches are not recorded") {
  const ShortConvolution layer = layer_of(3);
  ConvolutionCache cache;
  const Tape tape;
  const Tensor y = layer(random_values({3, 2, kWidth}, 4), cache);
  CHECK_FALSE(tape.tracks(y));
  CHECK(tape.memory().nodes == 0);
}

TEST_CASE("what does not fit is refused") {
  CHECK(message_of<Error>([] {
          ShortConvolution({3, 0});
        }) == "[short_convolution] width and taps must be positive; got width=3, taps=0; try 4 taps");
  const ShortConvolution layer = layer_of(3);
  CHECK_THROWS_AS(layer(random_values({2, 4, kWidth + 1}, 4)), ShapeError);
  ConvolutionCache cache;
  layer(random_values({3, 2, kWidth}, 4), cache);
  CHECK_THROWS_WITH_AS(layer(random_values({2, 1, kWidth}, 4), cache),
                       "[short_convolution] tokens must have the rows and columns of those before them; got "
                       "x=f64[2,1,5] after f64[3,2,5]; try reorder() or clear()",
                       ShapeError);
  CHECK_THROWS_AS(cache.reorder({3}), ShapeError);
}
