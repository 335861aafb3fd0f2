#pragma once

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <string>

namespace tapeformer {

/// What a training spends its time on; the names are kPhaseNames'.
enum class Phase {
  start,        ///< data, vocabularies, model: everything before the first step
  batches,      ///< making the next batch
  forward,      ///< the model on it, and the loss
  backward,     ///< gradients
  update,       ///< their norm, and the optimizer
  validation,   ///< and what is measured at the end
  checkpoints,  ///< all files of weights, and trying the weights before
  samples,      ///< outputs to look at
  log,          ///< lines, metrics, and whatever is left
};
constexpr std::array<const char*, 9> kPhaseNames = {
    "start", "batches", "forward", "backward", "update", "validation", "checkpoints", "samples", "log"};

/// Tells where the time goes. Every moment since the clock was made belongs to one phase, so that the phases
/// add up to the whole.
class PhaseClock {
 public:
  PhaseClock();

  /// What comes now belongs to `phase`. Returns the one before.
  Phase enter(Phase phase);
  /// By phase, up to now.
  std::array<double, kPhaseNames.size()> seconds() const;
  double seconds(Phase phase) const { return seconds()[static_cast<std::size_t>(phase)]; }
  /// "of 55 s: steps 96.4 % (forward 30.1, backward 60.2, update 6.1), start 0.5 %, ...".
  std::string text() const;
  /// Seconds by phase, to the millisecond.
  nlohmann::ordered_json json() const;

  /// What comes belongs to `phase` until this goes, then to the phase before.
  class Scope {
   public:
    Scope(PhaseClock& clock, Phase phase) : clock_(clock), before_(clock.enter(phase)) {}
    ~Scope() { clock_.enter(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

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
