#pragma once

#include <tapeformer/optim/optimizers.h>
#include <tapeformer/optim/schedule.h>

namespace tapeformer {

class Command;

/// The options of the training loop, for any model.
struct TrainingOptions {
  Index steps = 2500, accumulate = 1;
  double time_budget = 0;  ///< minutes that the program may take, which determine `steps`; 0 keeps `steps`
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
  Index keep_checkpoints = 0;     ///< the number of last validations whose weights are kept, to be averaged
  Index earlier_checkpoints = 0;  ///< the number kept besides the last one, for resuming if it is damaged
  Index log_every = 100;          ///< steps between lines of a log
  Index samples = 3;              ///< shown at every validation
  bool recompute_layers = false;  ///< less memory, more time, same results: see activation_checkpointing.h

  ScheduleConfig schedule_config() const;
  /// Fits options that were not given to `command` to the given ones: calls set_steps(steps) unless there is
  /// a time budget, which --steps clears, and makes the lowest learning rate at most a tenth of the highest.
  void adapt(const Command& command);
  /// Sets the steps and, unless they were given, makes the steps between two lines of the log at most a tenth
  /// of that, those between validations at most a quarter, and the warm-up at most a tenth until `is_begun`.
  void set_steps(Index count, bool is_begun = false);
  /// Throws: Error naming options that make no sense
  void check() const;
  /// Throws: Error naming an option that `command` was given and that would change nothing
  void refuse_ignored(const Command& command) const;

  /// A heading in --help, under which tasks have more options.
  static constexpr const char* kChecksPart = "validation, checkpoints and log";
  void describe(const FieldVisitor& field);

 private:
  Index most_warmup_ = 0, most_log_ = 0, most_validate_ = 0;  // values before set_steps(); 0 until then
  bool keeps_warmup_ = false, keeps_log_ = false, keeps_validate_ = false;
};

}  // namespace tapeformer
