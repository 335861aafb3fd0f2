#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/optim/schedule_free.h>
#include <tapeformer/tests/autograd/communication/ranks_case.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/support.h>

#include <utility>

using namespace tapeformer;

namespace {

ScheduleFreeConfig small_betas() {
  ScheduleFreeConfig config;
  config.beta1 = 0.8, config.beta2 = 0.95, config.epsilon = 1e-6, config.weight_decay = 0.1;
  return config;
}

}  // namespace

TEST_SUITE("optim/schedule_free") {
  TEST_CASE("ten steps agree with the paper's algorithm, where it trains and where it evaluates") {
    for (const DType type : {DType::f32, DType::f64}) {
      const double tolerance = type == DType::f64 ? 1e-13 : 2e-6;
      OptimCase model(type);
      ScheduleFreeAdamW optimizer(model.parameters(), small_betas());
      model.run(optimizer, 0, 10);
      CHECK_BELOW(distance(model.weight, {0.453591518341766, -1.34722873165977, 2.0453132470698,
                                          1.09320427270287, -0.443614705263766, 1.75575371834733}),
                  tolerance);
      CHECK_BELOW(distance(model.bias, {0.126184784268186, -0.386289155912483, 0.270960824772082}),
                  tolerance);
      CHECK(optimizer.exchange_weights());
      CHECK_BELOW(distance(model.weight, {0.465121797044453, -1.36549152005625, 2.06484249795705,
                                          1.06936658969858, -0.432104348429715, 1.72876576924699}),
                  tolerance);
      CHECK_BELOW(distance(model.bias, {0.128196136827527, -0.388595525186533, 0.290322703533374}),
                  tolerance);
    }
  }

  TEST_CASE("evaluating in between does not change what is trained, to the last bit, shadows included") {
    OptimCase plain(DType::f32), model(DType::f32);
    if (default_device().is_cuda()) model.weight.set_shadow(DType::bf16);
    ScheduleFreeAdamW expected(plain.parameters()), optimizer(model.parameters());
    for (int step = 0; step < 5; ++step) {
      plain.run(expected, step, step + 1);
      model.run(optimizer, step, step + 1);
      const Tensor trained = model.weight.value().clone(), shadow = model.weight.used().to(DType::f32);
      optimizer.exchange_weights();
      if (step > 0) CHECK(absolute_error(model.weight.value(), trained) > 1e-4);
      const Tensor narrowed = model.weight.value().to(model.weight.used().dtype()).to(DType::f32);
      CHECK(absolute_error(model.weight.used().to(DType::f32), narrowed) == 0);
      optimizer.exchange_weights();
      CHECK(absolute_error(model.weight.used().to(DType::f32), shadow) == 0);
    }
    CHECK(absolute_error(model.weight.value(), plain.weight.value()) == 0);
    CHECK(absolute_error(model.bias.value(), plain.bias.value()) == 0);
  }

  TEST_CASE("a first step whose norm is not finite leaves the weights and no trace in the average") {
    OptimCase model(DType::f64);
    ScheduleFreeAdamW optimizer(model.parameters());
    model.set_gradients(0);
    model.bias.gradient().copy_from(Tensor::from<double>({0.5, NAN, 0.25}).to(DType::f64));
    CHECK_FALSE(std::isfinite(optimizer.clipped_step(0.1, 1, 1).item()));
    optimizer.exchange_weights();
    CHECK(distance(model.bias, {0.1, -0.2, 0.3}) == 0);
    optimizer.exchange_weights();
    model.set_gradients(1);
    optimizer.clipped_step(0.1, 1, 1);
    optimizer.exchange_weights();
    CHECK(distance(model.bias, {0.1, -0.2, 0.3}) < 0.1);
    CHECK(distance(model.bias, {0.1, -0.2, 0.3}) > 0.01);
  }

  TEST_CASE("its counts and sums are saved: restored in the middle it goes on to the same bits") {
    OptimCase whole(DType::f64), second(DType::f64);
    ScheduleFreeAdamW before(whole.parameters(), small_betas()), after(second.parameters(), small_betas());
    whole.run(before, 0, 4);
    OptimizerCopy copy;
    before.visit_state(copy);
    CHECK(copy.counters == std::map<std::string, std::int64_t>{{"schedule_free.steps.layer.bias", 3},
                                                               {"schedule_free.steps.layer.weight", 4}});
    CHECK(copy.numbers.size() == 2);
    CHECK(copy.tensors.size() == 4);
    copy.restores = true;
    after.visit_state(copy);
    second.weight.value().copy_from(whole.weight.value());
    second.bias.value().copy_from(whole.bias.value());
    whole.run(before, 4, 10);
    second.run(after, 4, 10);
    CHECK(absolute_error(second.weight.value(), whole.weight.value()) == 0);
    CHECK(absolute_error(second.bias.value(), whole.bias.value()) == 0);
  }

  TEST_CASE("ranks that divide the work train and evaluate what those that do not") {
    const auto train = [](bool sharded) {
      std::vector<Tensor> values;
      reference::as_ranks(3, [&](Communicator& ranks) {
        const RanksCase model(DType::f64);
        DataParallel parallel(shared(ranks), model.parameters(), {256, sharded});
        ScheduleFreeAdamW optimizer(model.parameters());
        optimizer.set_shards(parallel);
        for (int step = 0; step < 5; ++step) {
          model.pass(ranks, parallel, step);
          optimizer.clipped_step(0.05, 1.0 / RanksCase::kRows, 0);
          parallel.gather_values();
          optimizer.clear_gradients();
        }
        for (int exchanged = 0; exchanged < 2; ++exchanged) {
          if (ranks.rank() == 2)
            for (const Parameter& parameter : model.parameters()) values.push_back(parameter.value().clone());
          optimizer.exchange_weights();
          parallel.gather_values();
        }
      });
      return values;
    };
    const std::vector<Tensor> expected = train(false), got = train(true);
    REQUIRE(got.size() == 10);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(absolute_error(got[i], expected[i]) == 0);
    CHECK(absolute_error(got[5], got[0]) > 0);
  }

  TEST_CASE("it finds the minimum of a quadratic at a rate that never falls") {
    const Parameter x(Tensor::from<double>({4, -3}));
    ScheduleFreeAdamW optimizer({x});
    for (int i = 0; i < 3000; ++i) {  // (x0 - 1)^2 + 500 (x1 - 2)^2
      set_gradient(x, Tensor::from<double>({2 * (x.value().at(0) - 1), 1000 * (x.value().at(1) - 2)}));
      optimizer.step(0.1);
    }
    optimizer.exchange_weights();
    CHECK_BELOW(distance(x, {1, 2}), 0.05);
  }

  TEST_CASE("rates that make no sense are refused by name") {
    const auto refused = [](double beta1, double beta2, double epsilon, const char* message) {
      ScheduleFreeConfig config;
      config.beta1 = beta1, config.beta2 = beta2, config.epsilon = epsilon;
      CHECK_THROWS_WITH_AS(ScheduleFreeAdamW({}, config), message, Error);
    };
    refused(0, 0.9, 1e-8, "[schedule_free] beta1 must be above 0; got 0");
    refused(0.9, 1, 1e-8, "[schedule_free] beta2 must be in [0, 1); got 1");
    refused(0.9, 0.9, 0, "[schedule_free] epsilon must be positive; got 0.000000");
  }
}
