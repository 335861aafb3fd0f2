#include <doctest/doctest.h>
#include <tapeformer/autograd/gradcheck/differences.h>
#include <tapeformer/tests/reference/support.h>

#include <cmath>
#include <functional>
#include <vector>

using namespace tapeformer;

namespace {

CentralDifferences differences_of(const std::function<double(double)>& f, bool four_point = true) {
  return {[f](double offset) { return std::vector<double>{f(offset)}; }, 1e-3, four_point};
}

NumericDerivative derivative_of(const std::function<double(double)>& f, double wanted = 1e-9) {
  return differences_of(f).extrapolated(0, wanted);
}

/// Four elements with derivatives of 1, whose differences are off by 1e-6, 3e-8, 3e-9 and 0.
std::vector<ComparedElement> four_elements() {
  return {{10, 1, 1 + 1e-6}, {11, 1, 1 + 3e-8}, {12, 1, 1 + 3e-9}, {13, 1, 1}};
}

}  // namespace

TEST_CASE("the usual differences have an error of the second or fourth order") {
  const auto cubic = [](double x) { return 2 * x * x * x + x; };
  CHECK_BELOW(deviation(differences_of(cubic, false).usual()[0], 1 + 2e-6), 1e-12);
  CHECK_BELOW(deviation(differences_of(cubic).usual()[0], 1), 1e-12);
}

TEST_CASE("extrapolated differences know how exact they are") {
  for (const double sharpness : {1., 30., 300., 3000.}) {
    const NumericDerivative d = derivative_of([=](double x) { return std::tanh(sharpness * x + 0.5); });
    const double exact = sharpness * (1 - std::pow(std::tanh(0.5), 2));
    CHECK_BELOW(d.uncertainty / exact, 1e-8);
    CHECK_BELOW(std::fabs(d.value - exact) / exact, 1e-8);
  }
  const NumericDerivative d = derivative_of([](double x) { return std::sin(1e7 * x); });
  CHECK(d.uncertainty > std::fabs(d.value) / 10);
}

TEST_CASE("a bump that the coarse steps overlook is seen") {
  const NumericDerivative d = derivative_of([](double x) { return std::exp(-std::pow(1e4 * x + 1, 2)); });
  CHECK_BELOW(std::fabs(d.value / (-2e4 * std::exp(-1)) - 1), 1e-6);
}

TEST_CASE("where small steps round too much, larger ones are used") {
  const auto f = [](double x) { return 1e7 + std::sin(x); };
  CHECK_BELOW(std::fabs(derivative_of(f).value - 1), 1e-7);
  CHECK(derivative_of(f).uncertainty < 1e-7);
}

TEST_CASE("a function that is NaN everywhere has no derivative") {
  CHECK(std::isnan(derivative_of([](double) { return std::nan(""); }).value));
  CHECK_BELOW(std::fabs(derivative_of([](double x) { return std::log(x + 5e-4); }).value / 2e3 - 1), 1e-8);
}

TEST_CASE("what is off by more than a tenth of the tolerance is extrapolated, the worst first") {
  std::vector<std::size_t> places;
  const GradcheckInput right =
      compare_elements("x", four_elements(), 0, {}, [&](std::size_t place, double wanted) {
        CHECK_BELOW(std::fabs(wanted - 1e-8), 1e-12);
        places.push_back(place);
        return NumericDerivative{1, 1e-12};
      });
  CHECK(places == std::vector<std::size_t>{0, 1});
  CHECK(right.passed);
  CHECK(right.checked == 4);
  CHECK(right.worst_element == 12);
}

TEST_CASE("the first failure ends the comparison, whether the gradient or the differences are at fault") {
  int calls = 0;
  const auto compared = [&](const NumericDerivative& again, double scale = 0) {
    calls = 0;
    return compare_elements("x", four_elements(), scale, {},
                            [&](std::size_t, double) { return ++calls, again; });
  };
  const GradcheckInput wrong = compared({1 + 5e-7, 1e-12});
  CHECK_FALSE(wrong.passed);
  CHECK(wrong.fault.empty());
  CHECK(wrong.worst_element == 10);
  CHECK(calls == 1);
  CHECK(compared({1 + 5e-7, 1e-7}).fault == kTooCoarse);
  CHECK_FALSE(compared({1 + 5e-7, 1e-7}).passed);
  CHECK(compared({1 + 9e-8, 1}).passed);
  CHECK(compared({1 + 5e-7, 1e-12}, 20).passed);
  CHECK(compared({1, 1e-12}, 20).scale == 20);
}

TEST_CASE("a passing element fails only by an extrapolation that is exact enough") {
  const std::vector<ComparedElement> near = {{0, 1, 1 + 8e-8}};
  const auto compared = [&](double uncertainty) {
    return compare_elements("x", near, 0, {}, [&](std::size_t, double) {
      return NumericDerivative{1 + 5e-7, uncertainty};
    });
  };
  CHECK(compared(2e-7).passed);
  CHECK_FALSE(compared(1e-9).passed);
}
