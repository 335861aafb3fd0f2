#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/moving_average.h>
#include <tapeformer/tests/autograd/communication/ranks_case.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/rounding.h>
#include <tapeformer/tests/reference/support.h>

#include <algorithm>

using namespace tapeformer;

namespace {

/// Sets every element to `value`, as a step would.
void set_all(const Parameter& x, double value) {
  x.value().copy_from(Tensor::full(x.value().shape(), value, x.value().dtype()));
  Parameter(x).refresh_shadow();
}

}  // namespace

TEST_CASE("the average follows the formula, its decay rising from 0, at every size") {
  for (const DType type : {DType::f32, DType::f64}) {
    for (const Index size : {0, 1, 31, 33, 257, 5001}) {
      const Parameter x(Tensor::zeros({size}, type));
      MovingAverage average({x}, 0.75);
      double expected = 0;
      for (int n = 0; n < 40; ++n) {  // n / (n + 9) passes 0.75 after 27 steps
        const double value = std::sin(n + 1.0), decay = std::min(0.75, n / (n + 9.0));
        set_all(x, value);
        average.include_weights();
        expected = decay * expected + (1 - decay) * value;
      }
      CHECK(average.exchange_weights());
      // Each step has four roundings of numbers below 1, which fade by 0.75, and as many of the formula.
      const double bound = 2 * 2 * 4 / (1 - 0.75) * unit_roundoff(type);
      for (Index i = 0; i < size; ++i) REQUIRE_BELOW(std::abs(x.value().at(i) - expected), bound);
    }
  }
}

TEST_CASE("swapping weights and average twice restores every bit, shadows included") {
  const bool narrows = default_device().is_cuda();
  OptimCase model(DType::f32);
  if (narrows) model.weight.set_shadow(DType::bf16);
  AdamW optimizer(model.parameters());
  MovingAverage average(model.parameters(), 0.9);
  CHECK_FALSE(average.exchange_weights());  // no average yet
  CHECK(model.weight.value().at(0) == 0.5);
  for (int step = 0; step < 5; ++step) {
    model.run(optimizer, step, step + 1);
    average.include_weights();
  }
  const Tensor weights = model.weight.value().clone(), shadow = model.weight.used().clone();
  average.exchange_weights();
  CHECK(absolute_error(model.weight.value(), weights) > 0.01);
  CHECK(absolute_error(model.weight.used().to(DType::f32),
                       model.weight.value().to(model.weight.used().dtype()).to(DType::f32)) == 0);
  average.exchange_weights();
  CHECK(absolute_error(model.weight.value(), weights) == 0);
  CHECK(absolute_error(model.weight.used().to(DType::f32), shadow.to(DType::f32)) == 0);
}

TEST_CASE("ranks that divide the work have the usual average, whole to save and to use") {
  const auto averages = [](bool sharded, OptimizerCopy& saved) {
    std::vector<Tensor> values;
    reference::as_ranks(3, [&](Communicator& ranks) {
      const RanksCase model(DType::f64);
      DataParallel parallel(reference::borrowed(ranks), model.parameters(), {256, sharded});
      AdamW optimizer(model.parameters());
      MovingAverage average(model.parameters(), 0.9);
      optimizer.set_shards(parallel);
      average.set_shards(parallel);
      for (int step = 0; step < 6; ++step) {
        model.pass(ranks, parallel, step);
        optimizer.clipped_step(0.05, 1.0 / RanksCase::kRows, 0);
        average.include_weights();
        parallel.gather_values();
        optimizer.clear_gradients();
      }
      OptimizerCopy own;
      average.visit_state(own);
      average.exchange_weights();
      parallel.gather_values();
      if (ranks.rank() != 1) return;
      saved = own;
      for (const Parameter& parameter : model.parameters()) values.push_back(parameter.value().clone());
    });
    return values;
  };
  OptimizerCopy whole, divided;
  const std::vector<Tensor> expected = averages(false, whole), got = averages(true, divided);
  REQUIRE(got.size() == 5);
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(absolute_error(got[i], expected[i]) == 0);
    const std::string name = "moving_average.value.p" + std::to_string(i);
    CHECK(absolute_error(divided.tensors.at(name), expected[i]) == 0);
    CHECK(divided.tensors.at(name).shape() == whole.tensors.at(name).shape());
  }
}

TEST_CASE("a norm on another device is refused") {
  if (!default_device().is_cuda()) return;
  const Parameter x(Tensor::zeros({3}));
  MovingAverage average({x}, 0.9);
  const Tensor norm = Tensor::zeros({1}, DType::f64, Device::cpu());
  CHECK_THROWS_WITH_AS(average.include_weights(norm),
                       doctest::Contains("[moving_average] norm must be on the device"), DeviceError);
}

TEST_CASE("a decay that is not a share below 1 is refused") {
  for (const double decay : {-0.1, 1.0, std::nan("")}) {
    CHECK(message_of<Error>([&] { MovingAverage({}, decay); }) ==
          format("[moving_average] decay must be in [0, 1); got {}", decay));
  }
}
