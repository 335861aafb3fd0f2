#include <doctest/doctest.h>
#include <tapeformer/examples/shared/loss_watch.h>

#include <cmath>
#include <vector>

using namespace tapeformer;

namespace {

/// The numbers of the losses that were found, from 0.
std::vector<int> found(const std::vector<double>& losses, double deviations = 6) {
  LossWatch watch;
  std::vector<int> numbers;
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (watch.is_far_above(losses[i], deviations)) numbers.push_back(static_cast<int>(i));
  return numbers;
}

/// Losses around a mean that falls, with a deviation of 0.07.
std::vector<double> usual(int count) {
  std::vector<double> losses;
  for (int i = 0; i < count; ++i)
    losses.push_back(2 + 2 * std::exp(-i / 300.0) + 0.1 * std::sin(12.9898 * i * i));
  return losses;
}

}  // namespace

TEST_SUITE("examples/shared/loss_watch") {
  TEST_CASE("a loss far above the last ones is found, a usual one is not") {
    std::vector<double> losses = usual(500);
    CHECK(found(losses).empty());
    losses[300] += 2;
    losses[400] -= 2;
    CHECK(found(losses) == std::vector<int>{300});
    CHECK(found(losses, 0).empty());
    CHECK(found(losses, 20).empty());
  }

  TEST_CASE("before there are 50 nothing is found") {
    std::vector<double> losses = usual(60);
    losses[49] += 100;
    CHECK(found(losses).empty());
    losses[49] -= 100;
    losses[50] += 100;
    CHECK(found(losses) == std::vector<int>{50});
  }

  TEST_CASE("a higher level becomes usual, and one high loss does not hide the next") {
    std::vector<double> losses = usual(500);
    losses[200] += 50;
    losses[201] += 50;
    for (std::size_t i = 300; i < losses.size(); ++i) losses[i] += 2;
    CHECK(found(losses) == std::vector<int>{200, 201, 300});
  }

  TEST_CASE("mean and deviation are those of the losses") {
    LossWatch watch;
    for (const double loss : {1.0, 2.0, 3.0, 6.0}) watch.is_far_above(loss, 6);
    CHECK(watch.mean() == doctest::Approx(3));
  }
}
