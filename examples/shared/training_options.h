#pragma once

#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/schedule.h>

#include <cstdint>
#include <initializer_list>
#include <string>

namespace tapeformer {

class Command;

/// The part of a program's options that its training loop follows, whatever it trains.
struct TrainingOptions {
  Index steps = 2500, accumulate = 1;
  double learning_rate = 2e-3, minimum_learning_rate = 0;
  Index warmup = 200;
  std::string schedule = "cosine";
  double weight_decay = 0.01, clip = 1.0, beta1 = 0.9, beta2 = 0.98;
  std::uint64_t seed = 1;
  Index validate_every = 500, patience = 0;
  Index checkpoint_every = 0;     ///< steps; 0 for every validation
  Index keep_checkpoints = 0;     ///< how many of the last validations' weights are kept, to be averaged
  Index log_every = 100;          ///< steps between lines of a log
  Index samples = 3;              ///< shown at every validation
  bool recompute_layers = false;  ///< less memory for more time, the same results: see recompute.h

  ScheduleConfig schedule_config() const;
  AdamWConfig adamw_config() const;
  /// Makes the warm-up at most a tenth of the steps, unless `command` was given --warmup.
  void adapt_warmup(const Command& command);
  /// Throws: Error naming the options that make no sense
  void check() const;
  /// Throws: Error naming an option that `command` was given and that would change nothing
  void refuse_ignored(const Command& command) const;

  /// Names every option once, f(group, name, field, help): see option_table.h. The for_each of a program's
  /// options calls it.
  template <class Self, class F>
  static void for_each(Self& o, const F& f) {
    f("Training", "steps", o.steps,
      "optimizer steps; with --resume a run goes on to this one, and its schedule is that of so many");
    f("Training", "accumulate", o.accumulate, "batches whose gradients make one step");
    f("Training", "learning_rate", o.learning_rate, "the highest learning rate");
    f("Training", "minimum_learning_rate", o.minimum_learning_rate, "where the cosine schedule ends");
    f("Training", "warmup", o.warmup,
      "steps over which the learning rate rises; unless it is given, at most a tenth of --steps");
    f("Training", "schedule", o.schedule, "constant, inverse_square_root or cosine");
    f("Training", "weight_decay", o.weight_decay, "AdamW's decay of matrices");
    f("Training", "clip", o.clip, "largest norm of all gradients together; 0 for no limit");
    f("Training", "beta1", o.beta1, "AdamW's decay of the first moment");
    f("Training", "beta2", o.beta2, "AdamW's decay of the second moment");
    f("Training", "seed", o.seed, "of all that is drawn: initial weights, held-out data, batches, dropout");
    f("Training", "validate_every", o.validate_every, "steps between validations");
    f("Training", "patience", o.patience,
      "validations without a better loss before stopping; 0 never stops early");
    f("Training", "checkpoint_every", o.checkpoint_every,
      "steps between checkpoints; 0 for every validation");
    f("Training", "keep_checkpoints", o.keep_checkpoints,
      "keep the weights of the last so many validations beside the best, to be averaged");
    f("Training", "log_every", o.log_every, "steps between two lines of the log");
    f("Training", "samples", o.samples, "outputs shown at every validation");
    f("Training", "recompute_layers", o.recompute_layers,
      "keep only what goes into each layer and compute the rest again in the backward pass: a fraction of "
      "the activations' memory, about a third more time a step, the same weights to the last bit");
  }
};

class Command;

/// The number of steps that `command` asks a resumed training for, in options.steps; 0 if it does not.
/// Throws: Error naming an option of these groups that it was given and that no run can change
Index steps_on_resuming(const Command& command, std::initializer_list<const char*> groups,
                        const TrainingOptions& options);

}  // namespace tapeformer
