#pragma once

#include <tapeformer/examples/train/passes.h>

#include <functional>
#include <vector>

namespace tapeformer {

/// The measurements that a number of steps is chosen by.
struct TimePlan {
  std::vector<double> step_seconds;  ///< of a step from 0 on, and from each of batch_changes() on
  double seconds_per_validation_token = 0;
};

/// Measures how long steps take, by steps with a learning rate of 0.
class StepTimer {
 public:
  StepTimer(Session& session, Passes& passes) : session_(session), passes_(passes) {}

  /// For TimePlan, in about `longest` seconds. Several shapes of batches are measured in turn, and the median
  /// turn counts: a moment in which the machine does something else slows down only a few turns. Collective.
  std::vector<double> measure(double longest);
  Index tokens() const { return tokens_; }  ///< in the steps measured, on this rank

 private:
  void step(Index first_batch);

  Session& session_;
  Passes& passes_;
  Index tokens_ = 0;
};

/// The mean of a step's seconds over the run, whose batches may change their shape.
double average_over_run(const TrainingTask& task, const std::vector<double>& seconds);
/// Gives the task as many steps as fit into `seconds`, with the validations that they bring.
void fit_steps(Session& session, double seconds, double per_step, double per_validation_token, bool is_begun);

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

}  // namespace tapeformer
