#pragma once

#include <tapeformer/examples/shared/progress.h>

namespace tapeformer {

/// While it exists, now_seconds() is `seconds`, which the test turns.
struct TurnedClock {
  TurnedClock() {
    set_clock([this] { return seconds; });
  }
  ~TurnedClock() { set_clock({}); }
  TurnedClock(const TurnedClock&) = delete;
  TurnedClock& operator=(const TurnedClock&) = delete;

  double seconds = 0;
};

}  // namespace tapeformer
