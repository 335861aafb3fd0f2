#include <tapeformer/autograd/random.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/lion.h>
#include <tapeformer/optim/sgd.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/rounding.h>
#include <tapeformer/tests/reference/support.h>
#include <tapeformer/tests/reference/threads.h>

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>

using namespace tapeformer;

namespace {

/// One element's step at a rate of 0.1, the steps counted from 1.
struct Rule {
  OptimizerConfig config;
  std::function<void(double g, double& x, double& m, double& v, int step)> update;
};

std::vector<Rule> rules() {
  const auto sgd = [](double g, double& x, double& m, double&, int) {
    m = 0.9 * m + g + 0.2 * x;
    x -= 0.1 * m;
  };
  const auto adamw = [](double g, double& x, double& m, double& v, int step) {
    m = 0.8 * m + 0.2 * g;
    v = 0.95 * v + 0.05 * g * g;
    const double mean = m / (1 - std::pow(0.8, step)), square = v / (1 - std::pow(0.95, step));
    x = x * (1 - 0.1 * 0.2) - 0.1 * mean / (std::sqrt(square) + 1e-8);
  };
  const auto lion = [](double g, double& x, double& m, double&, int) {
    const double direction = 0.8 * m + 0.2 * g;
    x = x * (1 - 0.1 * 0.2) - 0.1 * (direction > 0 ? 1 : -1);
    m = 0.95 * m + 0.05 * g;
  };
  const OwnValues betas{{"beta1", 0.8}, {"beta2", 0.95}, {"weight_decay", 0.2}};
  return {{{"sgd", {}}, [](double g, double& x, double&, double&, int) { x -= 0.1 * g; }},
          {{"sgd", {{"momentum", 0.9}, {"weight_decay", 0.2}}}, sgd},
          {{"adamw", betas}, adamw},
          {{"lion", betas}, lion}};
}

/// A random column of `size` values, the gradients of four steps at a scale of 0.5, and the results.
std::vector<Tensor> trained(const OptimizerConfig& config, Index size, DType type, int threads) {
  Generator random(test_seed(3));
  std::vector<Tensor> all{Tensor::randn({size, 1}, random).to(type)};
  const Parameter x(all[0].clone());
  const auto optimizer = config.make({x});
  const Threads set(threads);
  for (int step = 0; step < 4; ++step) {
    all.push_back(Tensor::randn({size, 1}, random).to(type));
    set_gradient(x, all.back());
    optimizer->step(0.1, 0.5);
  }
  all.push_back(x.value());
  return all;
}

}  // namespace

TEST_CASE("every rule follows its formula at every size, with any number of threads") {
  for (const Rule& rule : rules()) {
    CAPTURE(rule.config.kind);
    for (const DType type : {DType::f32, DType::f64}) {
      for (const Index size : {0, 1, 31, 32, 33, 257, 50001}) {
        const std::vector<Tensor> one = trained(rule.config, size, type, 1),
                                  two = trained(rule.config, size, type, 2);
        CHECK(absolute_error(one.back(), two.back()) == 0);
        if (size > 257) continue;  // of 50,001 elements some are near a sign's change
        // Four steps of up to five roundings of values below 8.
        for (Index i = 0; i < size; ++i) {
          double x = one[0].at(i), m = 0, v = 0;
          for (std::size_t step = 1; step < one.size() - 1; ++step)
            rule.update(0.5 * one[step].at(i), x, m, v, static_cast<int>(step));
          REQUIRE_BELOW(std::abs(one.back().at(i) - x), 160 * unit_roundoff(type));
        }
      }
    }
  }
}

TEST_CASE(
    "steps agree with torch.optim and Lion's paper, where vectors do not decay and a gradient is missing") {
  struct Golden {
    std::function<std::unique_ptr<Optimizer>(const std::vector<Parameter>&)> make;
    int steps;
    std::vector<double> weight, bias;
  };
  const auto sgd = [](const SgdConfig& config) {
    return [=](const std::vector<Parameter>& x) { return std::make_unique<Sgd>(x, config); };
  };
  const auto adamw = [](const std::vector<Parameter>& x) {
    return std::make_unique<AdamW>(x, AdamWConfig{0.8, 0.95, 1e-6, 0.1});
  };
  const auto lion = [](const std::vector<Parameter>& x) {
    return std::make_unique<Lion>(x, LionConfig{0.8, 0.95, 0.1});
  };
  const Golden all[] = {{sgd({}),
                         5,
                         {0.528515371824946, -1.48993274616898, 2.09242810959764, 0.835395006385369,
                          -0.371177806436908, 1.3607859292976},
                         {0.17288832092312, -0.361871173452122, 0.335522028015433}},
                        {sgd({0.9, 0.01}),
                         5,
                         {0.154891636094569, -1.48589627257807, 2.02246532914587, 0.907458381713591,
                          -0.1930618270008, 1.65915805271183},
                         {-0.144783379798324, -0.311655909391734, 0.368337739459062}},
                        {adamw,
                         5,
                         {0.287207603318965, -1.36055050554729, 1.893727298236, 0.854191764898041,
                          -0.193837455441581, 1.43358531725761},
                         {-0.0580870534003748, -0.321172595502717, 0.44580492619555}},
                        {lion,
                         10,
                         {0.344635132358053, -1.11053168597012, 1.84806374492304, 1.16139162164258,
                          -0.402138127222788, 1.75575731192824},
                         {-0.2, -0.18, 0.42}}};
  for (const Golden& golden : all) {
    for (const DType type : {DType::f32, DType::f64}) {
      OptimCase model(type);
      model.run(*golden.make(model.parameters()), 0, golden.steps);
      // Up to ten steps with four roundings of numbers below 2.1.
      const double tolerance = type == DType::f64 ? 1e-13 : 2 * 10 * 4 * 2.1 * unit_roundoff(type);
      CHECK_BELOW(distance(model.weight, golden.weight), tolerance);
      CHECK_BELOW(distance(model.bias, golden.bias), tolerance);
    }
  }
}

TEST_CASE("settings that make no sense are refused by name") {
  CHECK(message_of<Error>([] {
          AdamW({}, {0.9, 0.999, 1e-50});
        }) == "[adamw] epsilon must be at least 1e-37; got 1e-50");
  CHECK(message_of<Error>([] { Lion({}, {1}); }) == "[lion] beta1 must be in [0, 1); got 1");
}

TEST_CASE("without momentum AdamW does not lose a small gradient after a large one") {
  const Parameter x(Tensor::full({1}, 0));
  AdamW optimizer({x}, {0, 0, 1e-8, 0});
  for (const double gradient : {1e8, 1e-3}) {
    set_gradient(x, Tensor::full({1}, gradient));
    optimizer.step(1);
  }
  CHECK_BELOW(deviation(x.value().item(), -2), 1e-4);
}
