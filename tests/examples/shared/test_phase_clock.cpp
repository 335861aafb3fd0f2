#include <tapeformer/examples/shared/phase_clock.h>
#include <tapeformer/tests/examples/turned_clock.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tapeformer;

TEST_CASE("every moment belongs to one phase; a line says the shares, and JSON the seconds") {
  TurnedClock time;
  PhaseClock clock;
  time.seconds += 4;
  CHECK(clock.enter(Phase::forward) == Phase::start);
  time.seconds += 8;
  {
    const PhaseClock::Scope scope(clock, Phase::checkpoints);
    time.seconds += 12;
  }
  time.seconds += 2;
  CHECK(clock.seconds(Phase::forward) == 10);  // running
  CHECK(clock.enter(Phase::log) == Phase::forward);
  time.seconds += 14;
  CHECK(clock.seconds(Phase::forward) == 10);
  CHECK(clock.seconds(Phase::validation) == 0);
  CHECK(clock.total() == doctest::Approx(40));
  CHECK(clock.text() ==
        "40 s: steps 25.0 % (forward 25.0, backward 0.0, update 0.0), start 10.0 %, batches 0.0 %, "
        "validation 0.0 %, checkpoints 30.0 %, samples 0.0 %, log 35.0 %");
  CHECK(clock.json().dump() ==
        R"({"start":4.0,"batches":0.0,"forward":10.0,"backward":0.0,"update":0.0,"validation":0.0,)"
        R"("checkpoints":12.0,"samples":0.0,"log":14.0})");
}
