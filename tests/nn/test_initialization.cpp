#include <tapeformer/nn/initialization.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/nn/normal_case.h>

#include <algorithm>

using namespace tapeformer;

namespace {

constexpr Index kOut = 200, kIn = 300;

/// The statistics of 60,000 values, whose standard errors are multiplied.
void check_uniform(const Tensor& x, double bound) {
  const auto count = static_cast<double>(x.elements());
  double total = 0, squares = 0, largest = 0;
  for (Index i = 0; i < x.elements(); ++i) {
    total += x.at(i);
    squares += x.at(i) * x.at(i);
    largest = std::max(largest, std::fabs(x.at(i)));
  }
  const double variance = bound * bound / 3;
  CHECK_BELOW(std::fabs(total / count), kDeviations * std::sqrt(variance / count));
  CHECK_BELOW(std::fabs(squares / count / variance - 1),
              kDeviations * std::sqrt(0.8 / count));  // kurtosis 9/5
  CHECK(largest <= bound * (1 + 1e-6));
  CHECK(largest > bound * 0.999);
}

}  // namespace

TEST_CASE("each initialiser has the distribution its paper asks for") {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tensor weight = Tensor::empty({kOut, kIn}, type);
    Generator random(test_seed(17));
    xavier_uniform(weight, random);
    check_uniform(weight, std::sqrt(6.0 / (kIn + kOut)));
    random.fill_normal(weight, 0, 0.02);
    check_normal(weight, 0.02);
    torch_linear_default(weight, kIn, random);
    check_uniform(weight, 1 / std::sqrt(static_cast<double>(kIn)));
  }
}

TEST_CASE("one seed gives the same values in both precisions, another seed gives others") {
  const auto drawn = [](DType type, std::uint64_t seed) {
    const Tensor weight = Tensor::empty({7, 5}, type);
    Generator random(test_seed(seed));
    xavier_uniform(weight, random);
    return weight;
  };
  CHECK(same_bits(drawn(DType::f32, 3), drawn(DType::f64, 3).to(DType::f32)));
  CHECK(absolute_error(drawn(DType::f64, 3), drawn(DType::f64, 4)) > 0.01);
}

TEST_CASE("only a matrix has fans") {
  Generator random(test_seed(1));
  CHECK(message_of<ShapeError>([&] { xavier_uniform(Tensor::zeros({3}), random); }) ==
        "[initialization] a weight must be [Out, In]; got weight=f32[3]");
}

TEST_CASE("parts of a packed weight are drawn as if each were alone") {
  Generator random(test_seed(3)), alone(test_seed(3));
  const Tensor packed = Tensor::empty({90, 20}), first = Tensor::empty({60, 20}),
               second = Tensor::empty({30, 20});
  xavier_uniform_parts(packed, {60, 30}, random);
  xavier_uniform(first, alone);
  xavier_uniform(second, alone);
  CHECK(same_bits(packed, concat({first, second}, 0)));
}
