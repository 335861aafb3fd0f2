#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/optim/lion.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/check_below.h>

using namespace tapeformer;

TEST_SUITE("optim/lion") {
  TEST_CASE("two steps by hand: a decayed value moves by the rate against the sign") {
    const Parameter x(Tensor::from<double>({1, -2, 3}, {1, 3}));
    LionConfig config;
    config.beta1 = 0.5, config.beta2 = 0.75, config.weight_decay = 0.5;
    Lion optimizer({x}, config);
    set_gradient(x, Tensor::from<double>({1e-3, -100, 0}, {1, 3}));
    optimizer.step(0.1);  // moments 0.25 of the gradients
    CHECK_BELOW(distance(x, {0.95 - 0.1, -1.9 + 0.1, 2.85}), 1e-15);
    set_gradient(x, Tensor::from<double>({-2e-4, 1000, 1}, {1, 3}));
    optimizer.step(0.1);  // directions 0.5 * 25e-5 - 1e-4, -12.5 + 500, 0.5
    CHECK_BELOW(distance(x, {0.85 * 0.95 - 0.1, -1.8 * 0.95 - 0.1, 2.85 * 0.95 - 0.1}), 1e-15);
  }

  TEST_CASE("ten steps agree with the paper's algorithm, with decay groups and a missing gradient") {
    LionConfig config;
    config.beta1 = 0.8, config.beta2 = 0.95;
    for (const DType type : {DType::f32, DType::f64}) {
      const double tolerance = type == DType::f64 ? 1e-13 : 1e-6;
      OptimCase model(type);
      Lion optimizer(model.parameters(), config);
      model.run(optimizer, 0, 10);
      CHECK_BELOW(distance(model.weight, {0.344635132358053, -1.11053168597012, 1.84806374492304,
                                          1.16139162164258, -0.402138127222788, 1.75575731192824}),
                  tolerance);
      CHECK_BELOW(distance(model.bias, {-0.2, -0.18, 0.42}), tolerance);
    }
  }

  TEST_CASE("rates that make no sense are refused by name") {
    LionConfig config;
    config.beta1 = 1;
    CHECK_THROWS_WITH_AS(Lion({}, config), "[lion] beta1 must be in [0, 1); got 1", Error);
    config = {};
    config.weight_decay = -1;
    CHECK_THROWS_WITH_AS(Lion({}, config), "[lion] weight_decay must not be negative; got -1", Error);
  }
}
