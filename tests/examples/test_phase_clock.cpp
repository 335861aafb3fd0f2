#include <tapeformer/examples/phase_clock.h>
#include <tapeformer/examples/progress.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <numeric>
#include <thread>

using namespace tapeformer;

namespace {

/// Lets at least so many milliseconds pass.
void wait(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

}  // namespace

TEST_SUITE("examples/phase_clock") {
  TEST_CASE("every moment belongs to one phase, and the phases add up to the whole") {
    const double begun = now_seconds();
    PhaseClock clock;
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

    const auto parts = clock.seconds();
    const double total = std::accumulate(parts.begin(), parts.end(), 0.0), passed = now_seconds() - begun;
    CHECK(total >= 0.028);
    CHECK(total <= passed);
    CHECK(total > 0.9 * passed);
  }

  TEST_CASE("a line says the shares of steps and of everything else, and JSON the seconds") {
    PhaseClock clock;
    clock.enter(Phase::samples);
    wait(20);
    const std::string text = clock.text();
    CHECK(text.find("of 0 s: steps 0.0 % (forward 0.0, backward 0.0, update 0.0), start ") == 0);
    CHECK(text.find(" %, batches 0.0 %, validation 0.0 %, checkpoints 0.0 %, samples ") != std::string::npos);
    const double share = std::stod(text.substr(text.find("samples ") + 8));
    CHECK(share > 50);
    CHECK(share <= 100);
    CHECK(text.substr(text.size() - 11) == ", log 0.0 %");
    const nlohmann::ordered_json seconds = clock.json();
    CHECK(seconds.size() == 9);
    CHECK(seconds.begin().key() == "start");
    CHECK(seconds.at("samples").get<double>() >= 0.02);
    CHECK(seconds.at("forward") == 0.0);
  }
}
