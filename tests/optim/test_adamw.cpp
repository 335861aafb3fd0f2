#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/check_below.h>

#include <array>

using namespace tapeformer;

TEST_SUITE("optim/adamw") {
  TEST_CASE("the first step moves by the learning rate, whatever the gradient's size, after the decay") {
    const Parameter x(Tensor::from<double>({1, -2}, {1, 2}));
    AdamW optimizer({x});
    set_gradient(x, Tensor::from<double>({1e-3, -100}, {1, 2}));
    optimizer.step(0.1);
    CHECK_BELOW(deviation(x.value().at(0), 1 * (1 - 0.1 * 0.01) - 0.1), 1e-5);
    CHECK_BELOW(deviation(x.value().at(1), -2 * (1 - 0.1 * 0.01) + 0.1), 1e-9);
  }

  TEST_CASE("five steps agree with torch.optim.AdamW, with decay groups and a missing gradient") {
    AdamWConfig config;
    config.beta1 = 0.8;
    config.beta2 = 0.95;
    config.epsilon = 1e-6;
    config.weight_decay = 0.1;
    for (const DType type : {DType::f32, DType::f64}) {
      const double tolerance = type == DType::f64 ? 1e-13 : 1e-6;
      OptimCase model(type);
      AdamW optimizer(model.parameters(), config);
      model.run(optimizer, 0, 5);
      CHECK_BELOW(distance(model.weight, {0.287207603318965, -1.36055050554729, 1.893727298236,
                                          0.854191764898041, -0.193837455441581, 1.43358531725761}),
                  tolerance);
      CHECK_BELOW(distance(model.bias, {-0.0580870534003748, -0.321172595502717, 0.44580492619555}),
                  tolerance);
    }
  }

  TEST_CASE("without momentum a gradient that shrinks is not lost in what came before") {
    AdamWConfig config;
    config.beta1 = config.beta2 = config.weight_decay = 0;
    const Parameter x(Tensor::full({1}, 0));
    AdamW optimizer({x}, config);
    for (const double gradient : {1e8, 1e-3}) {
      set_gradient(x, Tensor::full({1}, gradient));
      optimizer.step(1);
    }
    CHECK_BELOW(deviation(x.value().item(), -2), 1e-4);
  }

  TEST_CASE("by default what has two axes or more decays; a predicate may say otherwise") {
    const auto decayed = [](const AdamWConfig& config) {
      OptimCase model(DType::f64);
      AdamW optimizer(model.parameters(), config);
      set_gradient(model.weight, Tensor::zeros({2, 3}, DType::f64));
      set_gradient(model.bias, Tensor::zeros({3}, DType::f64));
      optimizer.step(1);
      return std::make_pair(model.weight.value().at(0) / 0.5, model.bias.value().at(0) / 0.1);
    };
    AdamWConfig config;
    config.weight_decay = 0.5;
    CHECK(decayed(config) == std::make_pair(0.5, 1.0));
    config.decays = [](const Parameter& parameter) { return parameter.name() == "layer.bias"; };
    CHECK(decayed(config) == std::make_pair(1.0, 0.5));
  }

  TEST_CASE("rates that make no sense are refused by name") {
    const std::vector<std::array<double, 3>> senseless{{1.0, 0.9, 0.0}, {0.9, 1.5, 0.0}, {0.9, 0.9, -1.0}};
    for (const auto& [beta1, beta2, decay] : senseless) {
      AdamWConfig config;
      config.beta1 = beta1, config.beta2 = beta2, config.weight_decay = decay;
      CHECK_THROWS_AS(AdamW({}, config), Error);
    }
  }
}
