#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/training_options.h>

#include <algorithm>
#include <sstream>
#include <utility>

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
  const auto require = [](bool holds, const char* option, const char* rule, auto got) {
    if (holds) return;
    std::ostringstream text;  // to_string() writes tiny numbers as 0
    text << option << " must " << rule << "; got " << got;
    throw Error(text.str());
  };
  for (const auto& [option, number] :
       {std::pair("--steps", steps), std::pair("--accumulate", accumulate),
        std::pair("--validate-every", validate_every), std::pair("--log-every", log_every)}) {
    require(number > 0, option, "be positive", number);
  }
  require(learning_rate > 0, "--learning-rate", "be positive", learning_rate);
  for (const auto& [option, number] :
       {std::pair("--patience", patience), std::pair("--warmup", warmup),
        std::pair("--checkpoint-every", checkpoint_every), std::pair("--keep-checkpoints", keep_checkpoints),
        std::pair("--samples", samples)}) {
    require(number >= 0, option, "not be negative", number);
  }
  require(clip >= 0, "--clip", "not be negative", clip);
  if (schedule == "cosine" && steps <= warmup) {
    throw Error("the cosine schedule needs more --steps than --warmup; got " + std::to_string(steps) +
                " and " + std::to_string(warmup) + "; try --warmup " + std::to_string(steps / 10));
  }
  Schedule{schedule_config()};
}

Index steps_on_resuming(const Command& command, std::initializer_list<const char*> groups,
                        const TrainingOptions& options) {
  bool given = false;
  for (const std::string& name : command.given_of(groups)) {
    given = given || name == "--steps";
    if (name == "--steps") continue;
    throw Error("--resume goes on with the options of the run; " + name +
                " cannot be changed, only --steps: start anew in another folder");
  }
  if (given && options.steps < 1)
    throw Error("--steps must be positive; got " + std::to_string(options.steps));
  return given ? options.steps : 0;
}

void TrainingOptions::adapt_warmup(const Command& command) {
  if (command.find("--warmup").given() || steps <= 0) return;
  const Index least = schedule == "inverse_square_root" ? 1 : 0;
  warmup = std::min(warmup, std::max(least, steps / 10));
}

void TrainingOptions::refuse_ignored(const Command& command) const {
  if (schedule != "cosine") command.refuse({"--minimum-learning-rate"}, "with --schedule " + schedule);
}

}  // namespace tapeformer
