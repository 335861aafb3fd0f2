#include <tapeformer/examples/shared/phase_clock.h>
#include <tapeformer/examples/shared/progress.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <numeric>
#include <thread>

using namespace tapeformer;

namespace {

/// Sleeps for at least `milliseconds`.
void wait(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

}  // namespace

TEST_SUITE("examples/shared/phase_clock") {
  TEST_CASE("every moment belongs to one phase, and the phases add up to the whole") {
    const double before = now_seconds();
    PhaseClock clock;
    const double begun = now_seconds();
    wait(4);
    CHECK(clock.enter(Phase::forward) == Phase::start);
    wait(8);
    {
      const PhaseClock::Scope scope(clock, Phase::checkpoints);
      wait(12);
    }
    wait(2);
    CHECK(clock.seconds(Phase::forward) >= 0.010);  // running
    CHECK(clock.enter(Phase::log) == Phase::forward);
    CHECK(clock.seconds(Phase::start) >= 0.004);
    CHECK(clock.seconds(Phase::checkpoints) >= 0.012);
    CHECK(clock.seconds(Phase::validation) == 0);
    const double forward = clock.seconds(Phase::forward);
    CHECK(forward >= 0.010);
    wait(2);
    CHECK(clock.seconds(Phase::forward) == forward);

    const double ended = now_seconds();
    const auto parts = clock.seconds();
    const double after = now_seconds(), total = std::accumulate(parts.begin(), parts.end(), 0.0);
    CHECK(total >= 0.028);
    CHECK(total >= (ended - begun) * (1 - 1e-9));  // but for the sum's rounding
    CHECK(total <= (after - before) * (1 + 1e-9));
  }

  TEST_CASE("a line says the shares of steps and of everything else, and JSON the seconds") {
    PhaseClock clock;
    clock.enter(Phase::samples);
    wait(20);
    const std::string text = clock.text();
    CHECK(text.find("of ") == 0);
    CHECK(text.find(" s: steps 0.0 % (forward 0.0, backward 0.0, update 0.0), start ") != std::string::npos);
    CHECK(text.find(" %, batches 0.0 %, validation 0.0 %, checkpoints 0.0 %, samples ") != std::string::npos);
    const double share = std::stod(text.substr(text.find("samples ") + 8));
    CHECK(share > 0);
    CHECK(share <= 100);
    CHECK(text.substr(text.size() - 11) == ", log 0.0 %");
    const nlohmann::ordered_json seconds = clock.json();
    CHECK(seconds.size() == 9);
    CHECK(seconds.begin().key() == "start");
    CHECK(seconds.at("samples").get<double>() >= 0.02);
    CHECK(seconds.at("forward") == 0.0);
  }
}
