#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/training_profile.h>
#include <tapeformer/tests/examples/arguments.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>

using namespace tapeformer;

namespace {

const MachineRates kSlow = {1e6, [](double) { return 1e9; }};  // a megaflop a second: bound by its products

}  // namespace

TEST_CASE("the first two steps are not measured, nor is work between steps or after the last") {
  const Tensor x = Tensor::full({4, 8}, 0.5), weight = Tensor::full({16, 8}, 0.25);
  TrainingProfile profile(3);
  int told = 0;
  for (int step = 0; step < 7; ++step) {
    CHECK(profile.is_partial() == (step == 3 || step == 4));
    profile.begin_step();
    if (step >= 2 && step < 5) linear(x, weight);
    if (step < 2 || step >= 5) tanh(x);
    if (profile.end_step()) ++told;
    tanh(x);  // a validation
  }
  CHECK(told == 1);
  const Json events = profile.trace().at("traceEvents");
  REQUIRE(events.size() == 3);
  for (const Json& event : events) {
    CHECK(event.at("name") == "linear");
    CHECK(event.at("cat") == "forward");
    CHECK(event.at("args").at("flops") == 2 * 4 * 8 * 16);
    CHECK(event.at("args").at("bytes") == 4 * (4 * 8 + 16 * 8 + 4 * 16));
  }
  CHECK(events[1].at("ts").get<double>() >=
        events[0].at("ts").get<double>() + events[0].at("dur").get<double>());
  CHECK(words_after(profile.text(kSlow), "tanh").empty());
}

TEST_CASE("the share of the machine's best is the longer of arithmetic and memory traffic, over the time") {
  const Tensor x = Tensor::full({64, 64}, 0.5);
  TrainingProfile profile(1);
  for (int step = 0; step < 3; ++step) {
    profile.begin_step();
    Tape tape;
    tape.watch(x);
    tape.backward(sum(tanh(matmul(x, x))));
    profile.end_step();
  }
  const std::string text = profile.text(kSlow);
  const auto forward = words_after(text, "matmul"), tanh = words_after(text, "tanh");
  REQUIRE(forward.size() == 9);
  REQUIRE(tanh.size() == 9);
  // 2 * 64^3 FLOPs at a megaflop a second are half a second.
  const double flops = 2.0 * 64 * 64 * 64 * (forward[0] == "forward" ? 1 : 2);
  const double share = 100 * flops / 1e6 / (1e-3 * std::stod(forward[2]));
  // The time is printed to a thousandth of a millisecond, the share to 1 %.
  const double rounding = 0.0006 / std::stod(forward[2]) + 0.6 / share;
  CHECK(std::stod(forward[7]) == doctest::Approx(share).epsilon(rounding));
  // No products: the bytes at a GB/s count, x and y forward, y, dy and dx backward.
  CHECK(tanh[5] == "-");
  CHECK(std::abs(std::stod(tanh[7]) - 100 * std::stod(tanh[6])) < 5.6);  // printed to 1 %, and 0.1 GB/s
  double shares = 0;
  for (const Json& event : profile.trace().at("traceEvents")) shares += event.at("dur").get<double>();
  CHECK(shares <= 1e3 * std::stod(words_after(text, "a step")[0]) * 1.01);
}
