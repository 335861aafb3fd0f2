#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <string>

namespace tapeformer {

/// The phases of a run; kPhaseNames holds their names.
enum class Phase {
  start,        ///< data, vocabularies, model: everything before the first step
  batches,      ///< preparing the next batch
  forward,      ///< the model and the loss
  backward,     ///< gradients
  update,       ///< the norm of gradients, and the optimizer
  validation,   ///< validations and the final evaluation
  checkpoints,  ///< writing weights and checkpoints
  samples,      ///< sample outputs
  log,          ///< the log, metrics, and everything else
  waiting,      ///< waiting for the other processes of the run
};
constexpr std::array<const char*, 10> kPhaseNames = {"start",  "batches",    "forward",     "backward",
                                                     "update", "validation", "checkpoints", "samples",
                                                     "log",    "waiting"};

/// Measures where the time goes. Every moment since the clock was made belongs to one phase, so the phases
/// add up to the total.
class PhaseClock {
 public:
  PhaseClock();

  /// Starts `phase` and returns the previous one.
  Phase enter(Phase phase);
  /// The seconds spent so far, by phase.
  std::array<double, kPhaseNames.size()> seconds() const;
  /// The seconds since the clock was made.
  double total() const;
  double seconds(Phase phase) const { return seconds()[static_cast<std::size_t>(phase)]; }
  /// "55 s: steps 96.4 % (forward 30.1, backward 60.2, update 6.1), start 0.5 %, batches 0.1 %, ...".
  std::string text() const;
  /// Seconds by phase, to the millisecond.
  nlohmann::ordered_json json() const;

  /// Enters `phase` for the duration of a scope.
  class Scope {
   public:
    Scope(PhaseClock& clock, Phase phase) : clock_(clock), before_(clock.enter(phase)) {}
    ~Scope() { clock_.enter(before_); }
    Scope(const Scope&) = delete;

   private:
    PhaseClock& clock_;
    const Phase before_;
  };

 private:
  std::array<double, kPhaseNames.size()> seconds_{};
  Phase current_ = Phase::start;
  double since_;
};

}  // namespace tapeformer
