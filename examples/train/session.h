#pragma once

#include <tapeformer/examples/shared/phase_clock.h>
#include <tapeformer/examples/train/control.h>
#include <tapeformer/examples/train/learner.h>
#include <tapeformer/examples/train/task.h>

#include <vector>

namespace tapeformer {

/// State that the parts of a run share: what it trains, where and how, and how far it is.
struct Session {
  /// `clock` has measured what came before; the model computes as `compute` says already.
  Session(RunFolder run_folder, const TrainingControl& how, TrainingTask& what, Progress& shown,
          const PhaseClock& since = {}, const Compute& on = {default_device()});

  bool is_alone() const { return ranks.size() == 1; }
  BatchShare share() const { return {ranks.rank(), ranks.size()}; }
  /// The number of batches in `steps` steps of the run.
  Index batches(Index steps) const { return steps * options.accumulate; }
  Index batches() const { return batches(step); }
  bool is_late() const;
  /// Takes over how many steps the task has now, which changes the schedule.
  void take_steps();
  /// The state of the model's random draws.
  std::vector<std::uint64_t> draws() const;
  void set_draws(const std::vector<std::uint64_t>& values) const;

  RunFolder folder;
  TrainingControl control;
  TrainingTask& task;
  Progress& progress;
  PhaseClock clock;
  Compute compute;
  TrainingOptions options;
  Communicator& ranks;
  Learner learner;
  Schedule schedule;
  double started = now_seconds();
  Index first_step = 0;          ///< of this session, from 0
  Index step = 0;                ///< steps done
  Index checkpointed_step = -1;  ///< those of the last checkpoint; -1 before the first
};

}  // namespace tapeformer
