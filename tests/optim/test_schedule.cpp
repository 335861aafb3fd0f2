#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/optim/schedule.h>
#include <tapeformer/tests/reference/check_below.h>

#include <algorithm>
#include <cmath>
#include <string>

using namespace tapeformer;
using doctest::Approx;

TEST_CASE("constant after the warm-up, which is a straight line") {
  const Schedule warm({"constant", 0.3, 3, 0, 0});
  CHECK(warm(0) == Approx(0.1));
  CHECK(warm(1) == Approx(0.2));
  CHECK(warm(1000000) == 0.3);
}

TEST_CASE("inverse square root is the schedule of Attention Is All You Need") {
  const Schedule schedule({"inverse_square_root", 2 / std::sqrt(512.0 * 4000), 4000, 0, 0});
  for (const Index n : {1, 2, 399, 3999, 4000, 4001, 100000}) {
    const auto x = static_cast<double>(n);
    const double expected = 2 * std::pow(512, -0.5) * std::min(std::pow(x, -0.5), x * std::pow(4000, -1.5));
    CHECK_BELOW(deviation(schedule(n - 1), expected), 1e-12);
  }
  CHECK_BELOW(deviation(schedule(3999), 2 * 0.000698771242968684), 1e-12);
}

TEST_CASE("cosine falls from the peak to the minimum and stays there") {
  const Schedule schedule({"cosine", 1.0, 10, 110, 0.2});
  CHECK(schedule(4) == Approx(0.5));
  CHECK(schedule(9) == 1.0);
  CHECK_BELOW(deviation(schedule(34), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2), 1e-14);
  CHECK_BELOW(deviation(schedule(59), 0.6), 1e-14);
  CHECK(schedule(109) == Approx(0.2));
  CHECK(schedule(5000) == 0.2);
  for (Index step = 10; step < 110; ++step) CHECK(schedule(step) < schedule(step - 1));
}

TEST_CASE("warm-up, stable, decay: the peak, and then a straight line to the minimum") {
  const Schedule schedule({"warmup_stable_decay", 1.0, 10, 110, 0.2, 0.4});  // falls from step 66 on
  CHECK(schedule(4) == Approx(0.5));
  for (const Index step : {9, 10, 40, 65}) CHECK(schedule(step) == 1.0);
  CHECK(schedule(66) == Approx(1 - 0.8 / 44));
  CHECK(schedule(87) == Approx(0.6));
  CHECK(schedule(108) == Approx(0.2 + 0.8 / 44));
  CHECK(schedule(109) == 0.2);
  CHECK(schedule(5000) == 0.2);
}

TEST_CASE("a cooldown of all steps begins when the warm-up ends") {
  for (const double cooldown : {0.95, 1.0}) {
    const Schedule line({"warmup_stable_decay", 1.0, 10, 110, 0, cooldown});
    CHECK(line(9) == 1.0);
    CHECK(line(10) == Approx(0.99));
    CHECK(line(59) == Approx(0.5));
    CHECK(line(109) == 0);
  }
}

TEST_CASE("every schedule reaches its peak at the end of the warm-up, and at once without one") {
  for (const std::string kind : {"constant", "inverse_square_root", "cosine", "warmup_stable_decay"}) {
    CAPTURE(kind);
    for (const Index warmup : {0, 1, 2, 7}) {
      CAPTURE(warmup);
      if (warmup == 0 && kind == "inverse_square_root") continue;  // refused
      for (const Index total : {warmup + 1, warmup + 2, warmup + 50}) {
        const Schedule schedule({kind, 0.3, warmup, total, 0});
        const Index peak = std::max<Index>(warmup, 1) - 1;
        CHECK(schedule(peak) == 0.3);
        CHECK(schedule(0) > 0);
        for (Index step = 0; step < total; ++step) CHECK(schedule(step) <= 0.3);
        for (Index step = 1; step <= peak; ++step) CHECK(schedule(step) > schedule(step - 1));
      }
    }
  }
}

TEST_CASE("a config that makes no sense is refused") {
  const auto refused = [](const ScheduleConfig& config, const char* message) {
    CHECK_THROWS_WITH_AS(Schedule{config}, message, Error);
  };
  refused({"linear", 1, 0, 0, 0},
          "[schedule] kind must be constant, inverse_square_root, cosine or warmup_stable_decay; got linear");
  refused({"constant", -1, 0, 0, 0}, "[schedule] learning_rate must not be negative; got -1");
  refused({"constant", std::nan(""), 0, 0, 0}, "[schedule] learning_rate must not be negative; got nan");
  refused({"constant", 1, -1, 0, 0}, "[schedule] warmup_steps must not be negative; got -1");
  refused({"inverse_square_root", 1, 0, 0, 0},
          "[schedule] inverse_square_root needs warmup_steps of at least 1; got 0");
  refused({"cosine", 1, 10, 10, 0},
          "[schedule] cosine needs more total_steps than warmup_steps; got 10 and 10");
  refused({"warmup_stable_decay", 1, 10, 10, 0},
          "[schedule] warmup_stable_decay needs more total_steps than warmup_steps; got 10 and 10");
  refused({"warmup_stable_decay", 1, 0, 10, 0, 0},
          "[schedule] cooldown must be above 0 and at most 1; got 0");
  refused({"warmup_stable_decay", 1, 0, 10, 0, std::nan("")},
          "[schedule] cooldown must be above 0 and at most 1; got nan");
  CHECK_NOTHROW(Schedule({"constant", 1, 0, 10, 2}));  // it does not use a minimum
  refused({"cosine", 1, 0, 10, 2}, "[schedule] minimum must be between 0 and learning_rate; got 2");
}
