#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/shared/training_options.h>

#include <algorithm>

namespace tapeformer {

void TrainingOptions::describe(const FieldVisitor& field) {
  field("steps", steps,
        "optimizer steps; with --resume a run continues to this one, with the schedule of a run that long",
        kPositive);
  field("time_budget", time_budget,
        "minutes: time the first steps, and choose --steps so that the program takes this long; 0 for none",
        kNotNegative);
  field("accumulate", accumulate, "batches whose gradients make one step", kPositiveSize);
  field("learning_rate", learning_rate, "the highest learning rate", kPositive);
  field("minimum_learning_rate", minimum_learning_rate,
        "where the schedules cosine and warmup_stable_decay end; unless it is given, at most a tenth of "
        "--learning-rate",
        kNotNegative);
  field("warmup", warmup,
        "steps over which the learning rate rises; unless it is given, at most a tenth of --steps",
        kNotNegative);
  field("schedule", one_of(schedule, {"constant", "inverse_square_root", "cosine", "warmup_stable_decay"}),
        "constant, inverse_square_root, cosine or warmup_stable_decay");
  field("cooldown", cooldown,
        "warmup_stable_decay: share of the steps, the last ones, over which the learning rate falls in a "
        "straight line; 1 for all after the warm-up",
        kPositiveShare);
  const FieldVisitor in_update = field.in_part("optimizer");
  optimizer.describe(in_update);
  in_update(
      "freeze", freeze,
      "keep the parameters whose names match a pattern as they are, such as those of a model that --from "
      "names: 'layers.[012].*', 'embedding.*'");
  in_update("clip", clip, "largest norm of all gradients together; 0 for no limit", kNotNegative);
  in_update(
      "average_decay", average_decay,
      "decay of a moving average of the weights, such as 0.999, which validations, samples and the weights "
      "that are written then use; 0 for none",
      kBelowOne);
  const FieldVisitor in_guard = field.in_part("bad steps");
  in_guard(
      "non_finite", one_of(non_finite, {"stop", "skip"}),
      "what happens at a step whose loss or gradient is not finite: stop, or skip (if the gradient is not, "
      "weights, their average and the optimizer's state, its counts of steps too, stay as if the step had "
      "not happened; learning rate and batches move on)");
  in_guard(
      "loss_spike", one_of(loss_spike, {"note", "stop", "skip"}),
      "what happens at a step whose loss is far above the last ones: note (it is counted), stop or skip");
  in_guard("spike_deviations", spike_deviations,
           "standard deviations above the mean of about the last 50 losses that make a spike; 0 disables "
           "--loss-spike",
           kNotNegative);
  field("seed", seed, "seed of all random draws: initial weights, held-out data, batches, dropout");
  const FieldVisitor in_checks = field.in_part(kChecksPart);
  in_checks("validate_every", validate_every,
            "steps between validations; unless it is given, at most a quarter of --steps", kPositive);
  in_checks("patience", patience, "validations without a better loss before stopping; 0 never stops early",
            kNotNegative);
  in_checks("checkpoint_every", checkpoint_every, "steps between checkpoints; 0 for every validation",
            kNotNegative);
  in_checks("keep_checkpoints", keep_checkpoints,
            "keep the weights of this many of the last validations besides the best, to be averaged",
            kNotNegative);
  in_checks("earlier_checkpoints", earlier_checkpoints,
            "keep this many checkpoints before the last one, to continue from if that is damaged",
            kNotNegative);
  in_checks("log_every", log_every,
            "steps between two lines of the log; unless it is given, at most a tenth of --steps", kPositive);
  in_checks("samples", samples, "outputs shown at every validation", kNotNegative);
  field("recompute_layers", recompute_layers,
        "keep only the input of each layer and compute the rest again in the backward pass: a fraction of "
        "the activations' memory, about a third more time per step, the same weights to the last bit");
}

ScheduleConfig TrainingOptions::schedule_config() const {
  return {schedule, learning_rate, warmup, steps, minimum_learning_rate, cooldown};
}

void TrainingOptions::check() const {
  check_options(fields_of(*this));
  if (has_end(schedule) && steps <= warmup)
    throw Error(format(
        "the {} schedule needs more --steps than --warmup; got {} and {}; try more steps or --warmup {}",
        schedule, steps, warmup, steps / 10));
  if (schedule == "inverse_square_root" && warmup < 1)
    throw Error(format("the {} schedule needs a --warmup of at least 1; got {}", schedule, warmup));
  if (has_end(schedule) && minimum_learning_rate > learning_rate) {
    throw Error(
        format("--minimum-learning-rate must be at most --learning-rate; got {} and {}; try "
               "--minimum-learning-rate 0",
               minimum_learning_rate, learning_rate));
  }
  optimizer.check();
}

void TrainingOptions::adapt(const Command& command) {
  if (command.find("--steps").given()) {
    command.refuse({"--time-budget"}, "with --steps");
    time_budget = 0;
  }
  keeps_warmup_ = command.find("--warmup").given();
  keeps_log_ = command.find("--log-every").given();
  keeps_validate_ = command.find("--validate-every").given();
  if (time_budget > 0) steps = std::max(steps, warmup + 1);  // until the budget sets them
  if (time_budget == 0) set_steps(steps);
  if (!command.find("--minimum-learning-rate").given())
    minimum_learning_rate = std::min(minimum_learning_rate, learning_rate / 10);
}

void TrainingOptions::set_steps(Index count, bool is_begun) {
  steps = count;
  const auto shorten = [&](Index& value, Index& most, Index parts, Index least) {
    if (most == 0) most = value;
    value = std::min(most, std::max(least, steps / parts));
  };
  if (!keeps_warmup_ && !is_begun)
    shorten(warmup, most_warmup_, 10, schedule == "inverse_square_root" ? 1 : 0);
  if (!keeps_log_) shorten(log_every, most_log_, 10, 1);
  if (!keeps_validate_) shorten(validate_every, most_validate_, 4, 1);
}

void TrainingOptions::refuse_ignored(const Command& command) const {
  const std::string with_schedule = "with --schedule " + schedule;
  if (!has_end(schedule)) command.refuse({"--minimum-learning-rate"}, with_schedule);
  if (schedule != "warmup_stable_decay") command.refuse({"--cooldown"}, with_schedule);
  if (spike_deviations == 0) command.refuse({"--loss-spike"}, "with --spike-deviations 0");
  for (const ConfigField& field : fields_of(optimizer))
    if (!field.value()) command.refuse({flag_of(field.name).c_str()}, "with --optimizer " + optimizer.kind);
}

}  // namespace tapeformer
