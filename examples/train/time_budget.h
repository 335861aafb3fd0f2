#pragma once

#include <tapeformer/examples/train/passes.h>

namespace tapeformer {

/// The measurements that a number of steps is chosen by.
struct TimePlan {
  std::vector<double> step_seconds;  ///< of a step from 0 on, and from each of batch_changes() on
  double seconds_per_validation_token = 0;
};

/// Gives the task as many steps as fit into options().time_budget, counted from the program's start. Task and
/// model are otherwise as they were; the session is of no more use.
TimePlan fit_time_budget(Session& session);

/// The one correction of that number, when the first steps have shown how fast the run is.
class TimeBudget {
 public:
  TimeBudget(Session& session, TimePlan plan);

  /// After every step: whether the number is to be corrected now.
  bool is_due();
  /// Calls `save` if the number has changed. Collective.
  void correct(const std::function<void()>& save);

 private:
  Session& session_;
  TimePlan plan_;
  Index corrects_at_ = 0;      // after that step; 0 for never
  double first_step_end_ = 0;  // when the first step was done
};

/// Tells what the run would take, each line as soon as it is known: at least one batch is computed. Task,
/// model and session are of no more use.
void dry_run(Session& session, const std::function<void(const std::string&)>& tell);

}  // namespace tapeformer
