#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/reference/rounding.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

constexpr double kTenth = 0.1F;  // rounded to f32: a sum's rounding errors keep their sign for long

/// The largest relative error of a sum of `count` positive numbers: some tens of roundings one after
/// another, and one for each halving (kernels/cpu/sum_by_halves.h).
double most(Index count) { return gamma_of(80 + 2 * std::llround(std::log2(count)), DType::f32); }

/// The largest relative error of elements that should all be `exact`.
double error_of(const Tensor& x, double exact) {
  double worst = 0;
  const Tensor here = x.to(Device::cpu());
  for (Index i = 0; i < here.elements(); ++i) worst = std::max(worst, std::fabs(here.at(i) / exact - 1));
  return worst;
}

Index many() { return default_device().is_cuda() ? 30000 : 4000001; }

}  // namespace

// The error of a sum in f32 grows only with the logarithm of its length.
TEST_CASE("sums and means, of everything, along the last axis and along the first") {
  const Index count = many();
  const Tensor x = Tensor::full({count}, kTenth);
  CHECK_BELOW(error_of(sum(x), kTenth * static_cast<double>(count)), most(count));
  CHECK_BELOW(error_of(mean(x), kTenth), most(count));
  for (const Index width : {1, 3, 300}) {
    CAPTURE(width);
    const Index rows = count / width;
    const double exact = kTenth * static_cast<double>(rows);
    CHECK_BELOW(error_of(sum(Tensor::full({rows, width}, kTenth), {0}), exact), most(rows));
    CHECK_BELOW(error_of(sum(Tensor::full({width, rows}, kTenth), {1}), exact), most(rows));
  }
}

TEST_CASE("the sum of a softmax over a long row") {
  const Index count = many();
  const Tensor x = Tensor::full({count}, -kTenth, DType::f32, Device::cpu());
  x.data<float>()[0] = 0;
  const double rest = std::exp(-kTenth), total = 1 + rest * static_cast<double>(count - 1);
  const Tensor y = softmax(x.to(default_device())), log_y = log_softmax(x.to(default_device()));
  // An exponential is off by a few units of its last place, and here all of them alike.
  CHECK_BELOW(error_of(slice(y, 0, 1, count - 1), rest / total), most(count));
  CHECK_BELOW(error_of(slice(log_y, 0, 1, count - 1), -kTenth - std::log(total)), most(count));
}

TEST_CASE("gradients of broadcast values: scalars, biases, rows of a table, gains of a norm") {
  const Index count = many(), rows = count / 4;
  const Parameter scalar(Tensor::full({}, 1)), bias(Tensor::full({4}, 1)), table(Tensor::full({3, 4}, 1)),
      gain(Tensor::full({4}, 1)), shift(Tensor::full({4}, 0));
  const Tensor seed = Tensor::full({rows, 4}, kTenth);
  const auto gradient_of = [&](const Parameter& parameter, const Tensor& y) {
    return Tape::current()->gradients(y, {parameter}, seed)[0];
  };
  const Tensor x = Tensor::full({rows, 4}, 1);
  const double of_row = kTenth * static_cast<double>(rows);
  Tape tape;
  CHECK_BELOW(error_of(gradient_of(scalar, x * scalar), 4 * of_row), most(count));
  CHECK_BELOW(error_of(gradient_of(bias, x + bias), of_row), most(rows));
  const Tensor ids = Tensor::full({rows}, 1, DType::i32);
  const Tensor of_table = gradient_of(table, embedding(table, ids));
  CHECK_BELOW(error_of(slice(of_table, 0, 1, 1), of_row), most(rows));
  CHECK(error_of(slice(of_table, 0, 0, 1) + 1.0, 1) == 0);
  CHECK_BELOW(error_of(gradient_of(shift, layer_norm(x, gain, shift)), of_row), most(rows));
}
