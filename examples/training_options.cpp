#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/training_options.h>

namespace tapeformer {

ScheduleConfig TrainingOptions::schedule_config() const {
  ScheduleConfig config;
  config.kind = schedule;
  config.learning_rate = learning_rate;
  config.warmup_steps = warmup;
  config.total_steps = steps;
  config.minimum = minimum_learning_rate;
  return config;
}

AdamWConfig TrainingOptions::adamw_config() const {
  AdamWConfig config;
  config.beta1 = beta1;
  config.beta2 = beta2;
  config.weight_decay = weight_decay;
  return config;
}

void TrainingOptions::check() const {
  const auto require = [](bool holds, const std::string& rule) {
    if (!holds) throw Error(rule);
  };
  require(steps > 0 && accumulate > 0 && validate_every > 0 && log_every > 0,
          "--steps, --accumulate, --validate-every and --log-every must be positive");
  require(learning_rate > 0, "--learning-rate must be positive; got " + std::to_string(learning_rate));
  require(patience >= 0 && clip >= 0 && warmup >= 0 && checkpoint_every >= 0 && keep_checkpoints >= 0 &&
              samples >= 0,
          "--patience, --clip, --warmup, --checkpoint-every, --keep-checkpoints and --samples must not be "
          "negative");
  require(schedule != "cosine" || steps > warmup,
          "the cosine schedule needs more --steps than --warmup; got " + std::to_string(steps) + " and " +
              std::to_string(warmup));
  Schedule{schedule_config()};
}

}  // namespace tapeformer
