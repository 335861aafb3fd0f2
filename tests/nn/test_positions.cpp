#include <tapeformer/nn/positions.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/nn/normal_case.h>
#include <tapeformer/tests/reference/rounding.h>

using namespace tapeformer;

namespace {

Positions positions_of(PositionKind kind, Index width, Index most) {
  Generator random(test_seed(1));
  return Positions({kind, width, most}, random);
}

}  // namespace

TEST_CASE("sinusoids worked by hand, odd widths included") {
  const Positions even = positions_of(PositionKind::sinusoidal, 4, 10);
  const Tensor y = even(Tensor::zeros({1, 3, 4}, DType::f64));
  for (Index t = 0; t < 3; ++t) {
    const auto at = static_cast<double>(t);
    const double expected[] = {std::sin(at), std::cos(at), std::sin(at / 100), std::cos(at / 100)};
    for (Index i = 0; i < 4; ++i) CHECK_BELOW(deviation(y.at(4 * t + i), expected[i]), kFewRoundings);
  }

  const Tensor fairseq =
      positions_of(PositionKind::sinusoidal_fairseq, 5, 10)(Tensor::zeros({1, 2, 5}, DType::f64));
  const std::vector<double> second = {std::sin(3.0), std::sin(3e-4), std::cos(3.0), std::cos(3e-4), 0};
  for (Index i = 0; i < 5; ++i)
    CHECK_BELOW(deviation(fairseq.at(5 + i), second[static_cast<std::size_t>(i)]), kFewRoundings);

  const Tensor odd = positions_of(PositionKind::sinusoidal, 3, 10)(Tensor::zeros({1, 2, 3}, DType::f64));
  CHECK_BELOW(deviation(odd.at(5), std::sin(std::pow(10000, -2.0 / 3))), 1e-14);
  const Tensor halves =
      positions_of(PositionKind::sinusoidal_halves, 3, 10)(Tensor::zeros({1, 2, 3}, DType::f64));
  for (const auto& [place, from] : {std::pair(3, 3), {4, 5}, {5, 4}}) CHECK(halves.at(place) == odd.at(from));
}

TEST_CASE("positions are added to every sequence of the batch, from the first position on") {
  for (const PositionKind kind : {PositionKind::sinusoidal, PositionKind::learned}) {
    Positions positions = positions_of(kind, 4, 10);
    positions.to(DType::f64);
    const Tensor x = random_values({2, 3, 4}, 2), from_start = Tensor::zeros({1, 8, 4}, DType::f64);
    const Tensor table = positions(from_start), y = positions(x, 5);
    for (Index b = 0; b < 2; ++b) {
      for (Index i = 0; i < 12; ++i)
        CHECK_BELOW(deviation(y.at(b * 12 + i), x.at(b * 12 + i) + table.at(20 + i)), kFewRoundings);
    }
  }
}

TEST_CASE("sinusoids are constants; learned positions are a small random parameter") {
  Positions fixed = positions_of(PositionKind::sinusoidal, 4, 10);
  CHECK(fixed.parameter_count() == 0);
  CHECK(fixed.state().buffers.size() == 1);
  Positions learned = positions_of(PositionKind::learned, 40, 100);
  CHECK(learned.state().buffers.empty());
  REQUIRE(learned.named_parameters().size() == 1);
  CHECK(learned.named_parameters()[0].first == "weight");
  const Tensor weight = learned.named_parameters()[0].second;
  CHECK(weight.shape() == Shape{100, 40});
  check_normal(weight, 0.02);
}

TEST_CASE("rotary positions add nothing, hold nothing and have no limit") {
  Positions rotary = positions_of(PositionKind::rotary, 4, 3);
  const Tensor x = random_values({2, 7, 4}, 2);
  CHECK(rotary(x, 5).state() == x.state());
  CHECK(rotary.parameter_count() == 0);
  CHECK(rotary.state().buffers.empty());
}

TEST_CASE("past the context, half of it is dropped whenever it is full") {
  for (const Index context : {1, 2, 3, 8, 9, 64}) {
    Index before = 0;
    for (Index length = 1; length < 5 * context; ++length) {
      const Index start = context_start(length, context), seen = length - start;
      INFO("context ", context, ", length ", length);
      if (length <= context) CHECK(start == 0);
      CHECK(seen <= context);
      CHECK((start == before || (start - before == (context + 1) / 2 && seen == context / 2 + 1)));
      before = start;
    }
  }
  CHECK_THROWS_WITH_AS(context_start(3, 0), "[context_start] the context must be positive; got 0", Error);
}

TEST_CASE("a sequence that is too long is refused, and so is an unknown kind") {
  for (const PositionKind kind : {PositionKind::sinusoidal, PositionKind::learned}) {
    const Positions positions = positions_of(kind, 4, 6);
    CHECK(positions(Tensor::zeros({1, 6, 4})).size(1) == 6);
    CHECK(message_of<ShapeError>([&] {
            positions(Tensor::zeros({1, 5, 4}), 2);
          }) ==
          "[positions] there are 6 positions; got x=f32[1,5,4] from position 2; try a shorter sequence, or a "
          "larger context (max_length of a translation model)");
  }
}
