#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/optim/muon.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/formulas.h>
#include <tapeformer/tests/reference/golden.h>
#include <tapeformer/tests/reference/rounding.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

const char* const kMatrices[] = {"wide", "tall", "square", "packed"};

/// The parameters that tests/golden/golden_muon.py trains.
struct MuonCase {
  explicit MuonCase(DType element) : golden("muon"), type(element) {
    for (const char* name : kMatrices) {
      parameters.emplace_back(
          golden.tensor("inputs", std::string("start.") + name, type).to(default_device()));
      parameters.back().set_name(name);
    }
  }

  void run(Optimizer& optimizer, int from, int to) {
    const std::vector<double> rates = golden.options("inputs").at("rates");
    for (int step = from; step < to; ++step) {
      for (const Parameter& parameter : parameters) {
        const std::string name = parameter.name();
        const Tensor all = golden.tensor("inputs", "gradients." + name, type);
        const Shape& shape = parameter.value().shape();
        const Tensor one = Tensor::empty(shape, type, Device::cpu());
        for (Index i = 0; i < one.elements(); ++i) {
          const double value = all.at(step * one.elements() + i);
          type == DType::f64 ? one.data<double>()[i] = value
                             : one.data<float>()[i] = static_cast<float>(value);
        }
        set_gradient(parameter, one.to(default_device()));
        if (name == "tall" && step == 4) parameter.state()->has_gradient = false;
      }
      optimizer.step(rates[static_cast<std::size_t>(step)]);
    }
  }

  double error(const std::string& of_case) const {
    double worst = 0;
    for (const Parameter& parameter : parameters) {
      const Tensor end = golden.tensor(of_case, "end." + parameter.name());
      worst = larger(worst, relative_error(parameter.value().to(Device::cpu()).to(DType::f64), end));
    }
    return worst;
  }

  Golden golden;
  DType type;
  std::vector<Parameter> parameters;
};

/// The result of five steps for a singular value.
double orthogonalized(double s) {
  for (int step = 0; step < 5; ++step) s = 3.4445 * s - 4.7750 * std::pow(s, 3) + 2.0315 * std::pow(s, 5);
  return s;
}

/// The root of the sum of squares.
double norm_of(const Tensor& x) { return std::sqrt(sum(x * x).item()); }

/// Muon's update for a gradient.
Tensor update_of(const Tensor& gradient, double steps = 5) {
  MuonConfig config;
  config.newton_schulz_steps = steps;
  config.momentum = config.weight_decay = 0;
  const Parameter x(Tensor::zeros(gradient.shape(), gradient.dtype()));
  Muon optimizer({x}, config);
  set_gradient(x, gradient);
  optimizer.step(-1 / std::sqrt(std::max(1.0, static_cast<double>(gradient.size(0)) /
                                                  static_cast<double>(gradient.size(1)))));
  return x.value();
}

MuonConfig config_of(const nlohmann::ordered_json& options) {
  MuonConfig config;
  config.row_parts = {{"packed", {5, 2, 2}}};
  config.momentum = options.at("momentum");
  config.nesterov = options.at("nesterov");
  config.weight_decay = options.at("weight_decay");
  config.update_rms = options.value("rms", 0.0);
  return config;
}

}  // namespace

TEST_CASE("ten steps agree with torch.optim.Muon, parts and a missing gradient included") {
  for (const char* name : {"torch", "torch_rms"}) {
    for (const DType type : {DType::f64, DType::f32}) {
      MuonCase model(type);
      Muon optimizer(model.parameters, config_of(model.golden.options(name)));
      model.run(optimizer, 0, 10);
      CAPTURE(name);
      CHECK_BELOW(model.error(name), type == DType::f64 ? 1e-10 : 1e-4);
    }
  }
}

TEST_CASE("an update has the singular vectors of its gradient, and a polynomial of the singular values") {
  Generator random(test_seed(4));
  const std::vector<std::pair<Index, Index>> shapes{{1, 1},   {1, 9},     {31, 33},  {64, 64},
                                                    {96, 32}, {270, 290}, {270, 700}};
  for (const auto& [rows, columns] : shapes) {
    const Tensor gradient = random_normal({rows, columns}, random) * 1e-6;
    const double norm = std::max(norm_of(gradient), MuonConfig{}.epsilon);
    const Tensor exact = with_singular_values(gradient, [&](double s) { return orthogonalized(s / norm); });
    CHECK_BELOW(relative_error(update_of(gradient), exact), 1e-10);
    CHECK_BELOW(relative_error(update_of(gradient.to(DType::f32)).to(DType::f64), exact), 1e-3);
  }
  CHECK(relative_error(update_of(Tensor::zeros({3, 4})), Tensor::zeros({3, 4})) == 0);
}

TEST_CASE("roundings do not grow where singular values are zero, however many steps there are") {
  // Roundings of the four products of each of five steps, each of a sum of `side` terms, enlarged as the
  // polynomial enlarges the smallest singular values, relative to the large one, which becomes at least 0.68.
  const auto of_roundings = [](Index side) {
    return std::sqrt(20.0 * static_cast<double>(side)) * unit_roundoff(DType::f32) * std::pow(3.4445, 5) /
           0.68;
  };
  constexpr int kDraws = 4;
  Generator random(test_seed(6));
  for (const Shape& shape : {Shape{96, 32}, Shape{32, 96}, Shape{40, 40}}) {
    double squares = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      const Tensor row = random_normal({1, shape[1]}, random), column = random_normal({shape[0], 1}, random);
      const Tensor gradient = matmul(column, row);  // of rank one
      const Tensor exact = gradient * (orthogonalized(1) / norm_of(gradient));
      const Tensor difference = update_of(gradient.to(DType::f32)).to(DType::f64) - exact;
      squares += std::pow(norm_of(difference) / norm_of(exact), 2) / kDraws;
      for (const double steps : {6, 12, 40}) {  // no element of a matrix exceeds its largest singular value
        const Tensor update = update_of(gradient.to(DType::f32), steps);
        CHECK(absolute_error(update, Tensor::zeros(shape)) < 1.21);
      }
    }
    CHECK_BELOW(std::sqrt(squares), of_roundings(std::min(shape[0], shape[1])));
  }
}

TEST_CASE("products of an update are never those of rounded factors") {
  if (default_device().is_cuda()) return;  // which rounds none in this precision
  Generator random(test_seed(4));
  const Tensor gradient = random_normal({300, 400}, random, DType::f32);
  const Tensor exact = update_of(gradient);
  set_matmul_precision(MatmulPrecision::bf16);
  const Tensor update = update_of(gradient);
  set_matmul_precision(MatmulPrecision::f32);
  CHECK(absolute_error(update, exact) == 0);
}

TEST_CASE("vectors, parts that do not add up and senseless values are refused") {
  const Parameter vector(Tensor::zeros({3})), matrix(Tensor::zeros({6, 2}));
  matrix.state()->name = "packed";
  const auto refused = [](const Parameter& parameter, const MuonConfig& config) {
    return message_of<Error>([&] { Muon({parameter}, config); });
  };
  CHECK(refused(vector, {}) ==
        "[muon] parameters must be matrices; got f32[3]; try MuonAdamW, which gives others to AdamW");
  MuonConfig config;
  config.row_parts = {{"packed", {2, 2}}};
  CHECK(has(refused(matrix, config), "the parts of a parameter must add up to its rows"));
  config = {};
  config.newton_schulz_steps = 2.5;
  CHECK(refused(matrix, config) == "[muon] newton_schulz_steps must be a whole number from 1 to 99; got 2.5");
  config = {};
  config.epsilon = 1e-50;
  CHECK(refused(matrix, config) == "[muon] epsilon must be at least 1e-37; got 1e-50");
  Parameter smaller(Tensor::zeros({6, 2}));
  Muon muon({smaller});
  smaller.set_value(Tensor::zeros({3, 2}));
  set_gradient(smaller, Tensor::zeros({3, 2}));
  CHECK(has(message_of<ShapeError>([&] { muon.step(0.1); }), "a parameter's state must have the elements"));
}
