#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/shared/training_options.h>

#include <algorithm>
#include <utility>

namespace tapeformer {

ScheduleConfig TrainingOptions::schedule_config() const {
  ScheduleConfig config;
  config.kind = schedule;
  config.learning_rate = learning_rate;
  config.warmup_steps = warmup;
  config.total_steps = steps;
  config.minimum = minimum_learning_rate;
  config.cooldown = cooldown;
  return config;
}

namespace {

void require_one_of(const std::string& flag, const std::string& value, std::vector<std::string> values) {
  if (std::find(values.begin(), values.end(), value) != values.end()) return;
  std::string names = values.back();
  values.pop_back();
  for (std::size_t i = values.size(); i-- > 0;)
    names = values[i] + (i + 1 < values.size() ? ", " : " or ") + names;
  throw Error(flag + " must be " + names + "; got \"" + value + "\"");
}

}  // namespace

void TrainingOptions::check() const {
  check_options(*this);
  require_one_of("--non-finite", non_finite, {"stop", "skip", "go-back"});
  require_one_of("--loss-spike", loss_spike, {"note", "stop", "skip", "go-back"});
  if (has_end(schedule) && steps <= warmup) {
    throw Error("the " + schedule + " schedule needs more --steps than --warmup; got " +
                std::to_string(steps) + " and " + std::to_string(warmup) + "; try --warmup " +
                std::to_string(steps / 10));
  }
  if (average_decay > 0 && optimizer.kind == "schedule_free") {
    throw Error(
        "--average-decay cannot be used with --optimizer schedule_free, which averages the weights "
        "itself; leave one of them out");
  }
  Schedule{schedule_config()};
  optimizer.check();
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

void TrainingOptions::adapt(const Command& command) {
  if (command.find("--steps").given()) {
    command.refuse({"--time-budget"}, "with --steps");
    time_budget = 0;
  }
  if (!command.find("--warmup").given()) shorten_warmup();
}

void TrainingOptions::shorten_warmup() {
  const Index least = schedule == "inverse_square_root" ? 1 : 0;
  warmup = std::min(warmup, std::max(least, steps / 10));
}

void TrainingOptions::refuse_ignored(const Command& command) const {
  const std::string with_schedule = "with --schedule " + schedule;
  if (!has_end(schedule)) command.refuse({"--minimum-learning-rate"}, with_schedule);
  if (schedule != "warmup_stable_decay") command.refuse({"--cooldown"}, with_schedule);
  if (spike_deviations == 0) command.refuse({"--loss-spike"}, "with --spike-deviations 0");
  for_each_field(optimizer, [&](const Field& field, const auto& member) {
    if (!is_set(member)) command.refuse({flag_of(field.name).c_str()}, "with --optimizer " + optimizer.kind);
  });
}

}  // namespace tapeformer
