#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/nn/formats/strict_json.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

// Arguments far beyond those of a well-behaved model, the ends of the types' ranges, and long sums.
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
  all.push_back({"exp near the largest number", [](const Tensor& x) { return exp(x); }, 0, 0, 87, 88.72});
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

/// The error over 24 roundings in f32 of |b| + size, and the numbers that f32 cannot hold.
double over_roundings(const Tensor& a, const Tensor& b, double size) {
  const double most = 24 * unit_roundoff(DType::f32);
  return over_bound(a, b, affine(magnitude(b), most, most * size + 1e-37));
}

Tensor function(const std::string& name, const Tensor& x) {
  if (name.rfind("pow ", 0) == 0) return pow(x, std::atof(name.c_str() + 4));
  for (const Unary f : kUnaries) {
    if (name == name_of(f)) return unary(f, x);
  }
  throw ShapeError("no function has the name " + name);
}

/// Both NaN, both the same infinity, or equal apart from rounding, `slack` and numbers below the type's
/// normal ones.
bool agree(double got, double expected, double slack, DType type) {
  if (std::isnan(expected) || std::isinf(expected))
    return std::isnan(expected) ? std::isnan(got) : got == expected;
  const double smallest = type == DType::f64 ? 0x1p-1022 : 0x1p-126;
  const double most = type == DType::f64 ? 1e-13 : 1e-5;
  return std::fabs(got - expected) <= most * std::fabs(expected) + smallest + slack;
}

constexpr double kTenth = 0.1F;  // rounded to f32: a sum's rounding errors keep their sign for long

/// The largest relative error of a sum of `count` positive numbers: some tens of roundings one after
/// another, and one for each halving (kernels/cpu/sum_by_halves.h).
double most(Index count) { return gamma_of(80 + 2 * std::llround(std::log2(count)), DType::f32); }

/// The largest relative error of elements that should all be `exact`.
double error_of(const Tensor& x, double exact) {
  return relative_error(x, Tensor::full(x.shape(), exact, DType::f64));
}

Index many() { return default_device().is_cuda() ? 30000 : 4000001; }

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
    CHECK_BELOW(over_roundings(got.y, exact.y, f.value_size), 1);
    CHECK_BELOW(over_roundings(got.gradients[0], exact.gradients[0], f.slope_size), 1);
  }
}

TEST_CASE("zeros, infinities, NaN and the ends of the range give what PyTorch gives, derivatives too") {
  const auto golden = parse_json(read_file(TAPEFORMER_SOURCE_DIR "/tests/golden/special_values.json"));
  for (const DType type : {DType::f64, DType::f32}) {
    for (const auto& entry : golden.at(type == DType::f64 ? "float64" : "float32").items()) {
      const std::string name = entry.key();  // a lambda may not capture a structured binding
      const auto& rows = entry.value();
      for (const auto& row : rows) {
        const auto number = [&](std::size_t i) {
          return std::strtod(row[i].get<std::string>().c_str(), nullptr);
        };
        const Tensor x = Tensor::full({}, number(0), type);
        const auto check = [&](const char* what, const Tensor& got, double expected) {
          // PyTorch multiplies an infinity by the bell curve's zero here; the limit is 0.
          const bool vanishes = (name == "erf" || name == "gelu") && std::isfinite(number(0));
          const double wanted = vanishes && std::isnan(expected) ? 0 : expected;
          INFO(std::string(name_of(type)), " ", name, " at ", row[0], ": ", std::string(what), " ",
               got.item(), " for ", wanted);
          // PyTorch's gelu adds erf to one, which loses all of a far smaller result.
          const double slack = name == "gelu" && number(0) < 0 ? 1e-16 : 0;
          CHECK(agree(got.item(), wanted, slack, type));
        };
        Tape tape;
        tape.watch(x);
        const Tensor y = function(name, x);
        check("value", y, number(1));
        check("derivative", tape.gradients(y, {x})[0], number(2));
        const Tensor first = tape.gradients(y, {x}, {}, true)[0];
        check("derivative, recorded,", first, number(2));
        check("second derivative",
              tape.tracks(first) ? tape.gradients(first, {x})[0] : Tensor::full({}, 0, type), number(3));
      }
    }
  }
}

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
  CHECK(slice(of_table, 0, 0, 1).to_vector<float>() == std::vector<float>(4, 0));
  CHECK_BELOW(error_of(gradient_of(shift, layer_norm(x, gain, shift)), of_row), most(rows));
}
