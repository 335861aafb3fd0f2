#pragma once

#include <tapeformer/optim/optimizers.h>
#include <tapeformer/optim/schedule.h>

namespace tapeformer {

class Command;

/// The options of the training loop, whatever it trains.
struct TrainingOptions {
  Index steps = 2500, accumulate = 1;
  double time_budget = 0;  ///< minutes for which the number of steps is chosen; 0: it is as given
  double learning_rate = 2e-3, minimum_learning_rate = 0;
  Index warmup = 200;
  std::string schedule = "cosine";
  double cooldown = ScheduleConfig().cooldown;
  OptimizerConfig optimizer = {"adamw", {{"beta2", 0.98}}};
  std::vector<std::string> freeze = {};  ///< patterns of names of parameters that stay as they are
  double clip = 1.0, average_decay = 0;
  std::string non_finite = "stop", loss_spike = "note";
  double spike_deviations = 6;
  std::uint64_t seed = 1;
  Index validate_every = 500, patience = 0;
  Index checkpoint_every = 0;     ///< steps; 0 for every validation
  Index keep_checkpoints = 0;     ///< how many of the last validations' weights are kept, to be averaged
  Index earlier_checkpoints = 0;  ///< how many are kept besides the last, to go on from if that is damaged
  Index log_every = 100;          ///< steps between lines of a log
  Index samples = 3;              ///< shown at every validation
  bool recompute_layers = false;  ///< less memory, more time, same results: see activation_checkpointing.h

  ScheduleConfig schedule_config() const;
  /// Options not given to `command` follow those given: set_steps(steps), and the lowest learning rate is at
  /// most a tenth of the highest. Forgets the time budget if it was given --steps.
  void adapt(const Command& command);
  /// Makes the steps between two lines of the log at most a tenth of the steps, those between validations at
  /// most a quarter, and the warm-up at most a tenth unless it has begun.
  void set_steps(Index count, bool is_begun = false);
  /// Throws: Error that names options without sense
  void check() const;
  /// Throws: Error naming an option that `command` was given and that would change nothing
  void refuse_ignored(const Command& command) const;

  void describe(const FieldVisitor& field);

 private:
  Index most_warmup_ = 0, most_log_ = 0, most_validate_ = 0;  // before that; 0 until then
  bool keeps_warmup_ = false, keeps_log_ = false, keeps_validate_ = false;
};

/// The number of steps that `command` asks a resumed training for, in options.steps; 0 if it does not.
/// Throws: Error naming an option of these groups that it was given and that no run can change
Index steps_on_resuming(const Command& command, std::initializer_list<const char*> groups,
                        const TrainingOptions& options);

}  // namespace tapeformer
