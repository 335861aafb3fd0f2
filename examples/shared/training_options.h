#pragma once

#include <tapeformer/optim/optimizers.h>
#include <tapeformer/optim/schedule.h>

#include <cstdint>
#include <initializer_list>
#include <string>

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
  double clip = 1.0, average_decay = 0;
  std::string non_finite = "stop", loss_spike = "note";
  double spike_deviations = 6;
  std::uint64_t seed = 1;
  Index validate_every = 500, patience = 0;
  Index checkpoint_every = 0;     ///< steps; 0 for every validation
  Index keep_checkpoints = 0;     ///< how many of the last validations' weights are kept, to be averaged
  Index earlier_checkpoints = 0;  ///< how many are kept beside the last, to go on from if that is damaged
  Index log_every = 100;          ///< steps between lines of a log
  Index samples = 3;              ///< shown at every validation
  bool recompute_layers = false;  ///< less memory, more time, same results: see activation_checkpointing.h

  ScheduleConfig schedule_config() const;
  /// Makes the warm-up at most a tenth of the steps, unless `command` was given --warmup, and forgets the
  /// time budget if it was given --steps.
  void adapt(const Command& command);
  /// Makes the warm-up at most a tenth of the steps.
  void shorten_warmup();
  /// Throws: Error that names options without sense
  void check() const;
  /// Throws: Error naming an option that `command` was given and that would change nothing
  void refuse_ignored(const Command& command) const;

  template <class Self, class F>
  static void for_each(Self& o, const F& field) {
    field("steps", o.steps,
          "optimizer steps; with --resume a run goes on to this one, with the schedule of a run that long",
          kPositive);
    field("time_budget", o.time_budget,
          "minutes: choose --steps so that the program takes this long here, by timing the first; 0 does not",
          kNotNegative);
    field("accumulate", o.accumulate, "batches whose gradients make one step", kPositive);
    field("learning_rate", o.learning_rate, "the highest learning rate", kPositive);
    field("minimum_learning_rate", o.minimum_learning_rate,
          "where the schedules cosine and warmup_stable_decay end", kNotNegative);
    field("warmup", o.warmup,
          "steps over which the learning rate rises; unless it is given, at most a tenth of --steps",
          kNotNegative);
    field("schedule", o.schedule, "constant, inverse_square_root, cosine or warmup_stable_decay");
    field("cooldown", o.cooldown,
          "warmup_stable_decay: share of the steps, the last ones, over which the learning rate falls in a "
          "straight line; 1 for all after the warm-up",
          kPositiveShare);
    OptimizerConfig::for_each(o.optimizer, field);
    field("clip", o.clip, "largest norm of all gradients together; 0 for no limit", kNotNegative);
    field(
        "average_decay", o.average_decay,
        "share that a step keeps of a moving average of the weights, such as 0.999; validations, samples and "
        "the weights that are written are then the average's; 0 for none",
        kBelowOne);
    field("non_finite", o.non_finite,
          "what a step whose loss or gradient is not finite does: stop, skip (the step changes nothing), or "
          "go-back (to the last checkpoint, from where the run goes on without that step)");
    field("loss_spike", o.loss_spike,
          "what a step whose loss is far above the last ones does: note (it is counted), stop, skip or "
          "go-back");
    field("spike_deviations", o.spike_deviations,
          "how far above: in standard deviations of about the last 50 losses; 0 looks for none",
          kNotNegative);
    field("seed", o.seed, "of all that is drawn: initial weights, held-out data, batches, dropout");
    field("validate_every", o.validate_every, "steps between validations", kPositive);
    field("patience", o.patience, "validations without a better loss before stopping; 0 never stops early",
          kNotNegative);
    field("checkpoint_every", o.checkpoint_every, "steps between checkpoints; 0 for every validation",
          kNotNegative);
    field("keep_checkpoints", o.keep_checkpoints,
          "keep the weights of that many last validations beside the best, to be averaged", kNotNegative);
    field("earlier_checkpoints", o.earlier_checkpoints,
          "keep that many checkpoints before the last one, to go on from if that is damaged", kNotNegative);
    field("log_every", o.log_every, "steps between two lines of the log", kPositive);
    field("samples", o.samples, "outputs shown at every validation", kNotNegative);
    field("recompute_layers", o.recompute_layers,
          "keep only the input of each layer and compute the rest again in the backward pass: a fraction of "
          "the "
          "activations' memory, about a third more time a step, the same weights to the last bit");
  }
};

/// The number of steps that `command` asks a resumed training for, in options.steps; 0 if it does not.
/// Throws: Error naming an option of these groups that it was given and that no run can change
Index steps_on_resuming(const Command& command, std::initializer_list<const char*> groups,
                        const TrainingOptions& options);

}  // namespace tapeformer
