#pragma once

#include <tapeformer/examples/train/passes.h>

namespace tapeformer {

/// The measurements by which a number of steps is chosen.
struct TimePlan {
  double first_step_seconds = 0;  ///< of a step before any of batch_changes(); 0 without a measurement
  double mean_step_seconds = 0;   ///< of a step, over the run
  double seconds_per_validation_token = 0;
};

/// Gives the task as many steps as fit into options().time_budget, counted from the start of session.clock.
/// Task and model are otherwise unchanged; the session must not be used again.
TimePlan fit_time_budget(Session& session);

/// Corrects the number of steps once, when the first steps have shown the speed of the run.
class TimeBudget {
 public:
  TimeBudget(Session& session, const TimePlan& plan);

  /// To be called after every step: whether to correct the number now.
  bool is_due();
  /// Calls `save` if the number has changed. Collective.
  void correct(const std::function<void()>& save);

 private:
  Session& session_;
  TimePlan plan_;
  Index corrects_at_ = 0;      // the step after which to correct; 0 for never
  double first_step_end_ = 0;  // end of the first step
};

/// Reports the memory and time of the run, each line as soon as it is known; computes at least one batch.
/// Task, model and session must not be used again.
void dry_run(Session& session, const std::function<void(const std::string&)>& tell);

}  // namespace tapeformer
