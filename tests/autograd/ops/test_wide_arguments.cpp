#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

#include <algorithm>
#include <cmath>

// Functions of one number in single precision, over arguments far beyond those of a well-behaved model.
using namespace tapeformer;

namespace {

constexpr Index kArguments = 10007, kLosses = 97;

/// A function of each of N numbers, and the sizes that are added to those of values and slopes before errors
/// are divided by them: 1 where a slope comes from the distance of a value to 1, which f32 rounds by 6e-8.
struct WideFunction {
  std::string name;
  std::function<Tensor(const Tensor&)> of;
  double value_size = 0, slope_size = 0;
  double from = -60, to = 60;
};

/// [N, 2]: the number, and a zero.
Tensor beside_zero(const Tensor& x) { return pad(reshape(x, {x.size(0), 1}), 1, 0, 2); }

Tensor column(const Tensor& x, Index which) { return reshape(slice(x, 1, which, 1), {x.size(0)}); }

std::vector<WideFunction> wide_functions() {
  std::vector<WideFunction> all;
  for (const Unary f : kUnaries) {
    WideFunction one{name_of(f), [f](const Tensor& x) { return unary(f, x); }};
    const auto is = [f](std::initializer_list<Unary> some) {
      return std::find(some.begin(), some.end(), f) != some.end();
    };
    if (is({Unary::log, Unary::sqrt})) one.from = 1e-3;
    if (f == Unary::log) one.value_size = 1;
    if (f == Unary::gelu_tanh) one.value_size = 1;
    if (is({Unary::tanh, Unary::sigmoid, Unary::gelu_tanh})) one.slope_size = 1;
    if (is({Unary::gelu, Unary::silu})) one.slope_size = 1;        // which has a zero
    if (is({Unary::erf, Unary::gelu})) one.from = -3, one.to = 3;  // exp(-x^2) loses digits with x^2
    all.push_back(one);
  }
  all.push_back({"softcap", [](const Tensor& x) { return softcap(x, 20); }, 0, 1});
  for (const Index which : {0, 1}) {
    const std::string name = which == 0 ? " of the number" : " of the zero";
    all.push_back(
        {"softmax" + name, [=](const Tensor& x) { return column(softmax(beside_zero(x)), which); }, 0, 1});
    all.push_back({"log_softmax" + name,
                   [=](const Tensor& x) { return column(log_softmax(beside_zero(x)), which); }, 1, 1});
    all.push_back(
        {"cross_entropy" + name,
         [=](const Tensor& x) {
           TensorList losses;
           const Tensor rows = beside_zero(x);
           for (Index i = 0; i < x.size(0); i += kLosses)
             losses.push_back(reshape(
                 cross_entropy(slice(rows, 0, i, 1), integers({static_cast<std::int32_t>(which)}, {1})),
                 {1}));
           return concat(losses, 0);
         },
         1, 1});
  }
  return all;
}

/// max |a - b| / (|b| + size), in units of f32's roundoff. Numbers that f32 cannot hold do not count.
double roundings(const Tensor& a, const Tensor& b, double size) {
  double most = 0;
  for (Index i = 0; i < b.elements(); ++i) {
    const double off = std::fabs(a.at(i) - b.at(i)), room = std::fabs(b.at(i)) + size;
    if (off > 1e-37) most = std::max(most, off / room);
  }
  return most / unit_roundoff(DType::f32);
}

}  // namespace

TEST_CASE("functions and their gradients keep f32's digits over ten thousand arguments") {
  for (const WideFunction& f : wide_functions()) {
    CAPTURE(f.name);
    const Tensor x =
        filled({kArguments}, [&](Index i) {
          return f.from + (f.to - f.from) * static_cast<double>(i) / static_cast<double>(kArguments - 1);
        }).to(DType::f32);
    const Op op = [&](const std::vector<Tensor>& in) { return f.of(in[0]); };
    const Tensor seed = Tensor::full(f.of(x).shape(), 1, DType::f64);
    const OpResult exact = run_op(op, {x.to(DType::f64)}, seed), got = run_op(op, {x}, seed);
    CHECK_BELOW(roundings(got.y, exact.y, f.value_size), 24);
    CHECK_BELOW(roundings(got.gradients[0], exact.gradients[0], f.slope_size), 24);
  }
}
