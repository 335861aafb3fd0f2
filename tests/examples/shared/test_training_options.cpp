#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/shared/training_options.h>
#include <tapeformer/tests/examples/arguments.h>
#include <tapeformer/tests/reference/config_case.h>

using namespace tapeformer;

namespace {

/// Options read from arguments separated by spaces.
struct Given {
  TrainingOptions options;
  CommandLine line;

  explicit Given(const std::vector<std::string>& arguments) {
    add_options(line, fields_of(options));
    read(line, arguments);
  }
  explicit Given(const std::string& arguments) : Given(words_of(arguments)) {}
};

/// Refused on reading, or because it would change nothing.
std::string refusal_of(const std::vector<std::string>& arguments) {
  return message_of<Error>([&] {
    const Given given(arguments);
    given.options.refuse_ignored(given.line);
  });
}

}  // namespace

TEST_CASE("options reach schedule and optimizer") {
  const TrainingOptions options =
      Given(
          "--steps 70 --learning-rate 0.5 --minimum-learning-rate 0.25 --warmup 9 --schedule constant "
          "--weight-decay 0.125 --beta1 0.75 --beta2 0.875 --keep-checkpoints 3 --steps 80 "
          "--recompute-layers")
          .options;
  CHECK(options.keep_checkpoints == 3);
  CHECK(options.recompute_layers);
  CHECK_FALSE(TrainingOptions().recompute_layers);
  CHECK(options.schedule_config().kind == "constant");
  CHECK(options.schedule_config().learning_rate == 0.5);
  CHECK(options.schedule_config().minimum == 0.25);
  CHECK(options.schedule_config().warmup_steps == 9);
  CHECK(options.schedule_config().total_steps == 80);
  CHECK(options.schedule_config().cooldown == 0.4);
  CHECK(Given("--schedule warmup_stable_decay --cooldown 0.5").options.schedule_config().cooldown == 0.5);
  CHECK(options.optimizer.option("weight_decay") == 0.125);
  CHECK(options.optimizer.option("beta1") == 0.75);
  CHECK(options.optimizer.option("beta2") == 0.875);
}

TEST_CASE("another optimizer has its own defaults and options; those of others are refused") {
  const auto options = [](const std::string& arguments) {
    CHECK(refusal_of(words_of(arguments)) == "nothing was thrown");
    return Given(arguments).options;
  };
  CHECK(options("").optimizer.kind == "adamw");
  CHECK(options("").optimizer.option("beta2") == 0.98);
  CHECK(options("--optimizer adamw").optimizer.option("beta2") == 0.98);
  for (const char* arguments : {"--optimizer sgd --momentum 0.5", "--momentum 0.5 --optimizer sgd"}) {
    const OptimizerConfig sgd = options(arguments).optimizer;
    CHECK(sgd.kind == "sgd");
    CHECK(sgd.option("momentum") == 0.5);
    CHECK(sgd.option("weight_decay") == 0);
    CHECK(sgd.options.size() == 1);
  }
  CHECK(json_of(options("--optimizer sgd")).contains("momentum"));
  CHECK_FALSE(json_of(options("--optimizer sgd")).contains("beta1"));
}

TEST_CASE("a value outside its type or range, or of no use, is refused by its option's name") {
  check_refused(
      {{"--steps many", "--steps must be a whole number; got many"},
       {"--steps 1.5", "--steps must be a whole number; got 1.5"},
       {"--steps 9223372036854775808", "--steps is out of range; got 9223372036854775808"},
       {"--steps 9223372036854775807", "nothing was thrown"},
       {"--seed=-1", "--seed must be a whole number, not negative; got -1"},
       {"--seed 18446744073709551615", "nothing was thrown"},
       {"--clip=nan", "--clip must be a finite number; got nan"},
       {"--clip=-inf", "--clip must be a finite number; got -inf"},
       {"--clip=0.1x", "--clip must be a finite number; got 0.1x"},
       {"--clip 1e999", "--clip is out of range; got 1e999"},
       {"--clip 1e-3", "nothing was thrown"},
       {"--steps 0", "--steps must be positive; got 0"},
       {"--patience=-1", "--patience must not be negative; got -1"},
       {"--average-decay 1", "--average-decay must be in [0, 1); got 1"},
       {"--schedule zigzag",
        "--schedule must be constant, inverse_square_root, cosine or warmup_stable_decay; got zigzag"},
       {"--optimizer zigzag", "--optimizer: the optimizer must be adamw"},
       {"--non-finite note", "--non-finite must be stop or skip; got note"},
       {"--momentum 0.5", "--momentum has no effect with --optimizer adamw; leave it out"},
       {"--optimizer sgd --beta1 0.5", "--beta1 has no effect with --optimizer sgd"},
       {"--loss-spike skip --spike-deviations 0", "--loss-spike has no effect with --spike-deviations 0"},
       {"--loss-spike skip", "nothing was thrown"},
       {"--schedule constant --minimum-learning-rate 0",
        "--minimum-learning-rate has no effect with --schedule constant"},
       {"--minimum-learning-rate 0", "nothing was thrown"},
       {"--schedule inverse_square_root", "nothing was thrown"},
       {"--cooldown 0.5", "--cooldown has no effect with --schedule cosine"},
       {"--schedule warmup_stable_decay --cooldown 0.5 --minimum-learning-rate 0", "nothing was thrown"}},
      refusal_of);
}

TEST_CASE("the warm-up is at most a tenth of the steps, unless it is given") {
  const auto warmup = [](const std::string& arguments) {
    Given given(arguments);
    given.options.adapt(given.line);
    given.options.check();
    return given.options.warmup;
  };
  CHECK(warmup("") == 200);
  CHECK(warmup("--steps 500") == 50);
  CHECK(warmup("--steps 5") == 0);
  CHECK(warmup("--steps 5 --schedule inverse_square_root") == 1);
  CHECK(warmup("--steps 500 --warmup 100") == 100);
}

TEST_CASE("the lowest learning rate is at most a tenth of the highest, unless it is given") {
  const auto minimum = [](const std::string& arguments) {
    Given given(arguments);
    if (!given.line.find("--minimum-learning-rate").given())
      given.options.minimum_learning_rate = 1e-4;  // as of a preset
    given.options.adapt(given.line);
    given.options.check();
    given.options.refuse_ignored(given.line);
    return given.options.minimum_learning_rate;
  };
  CHECK(minimum("") == 1e-4);
  CHECK(minimum("--learning-rate 1e-3") == 1e-4);
  CHECK(minimum("--learning-rate 5e-5") == 5e-5 / 10);
  CHECK(minimum("--learning-rate 5e-5 --schedule constant") < 5e-5);
  CHECK(minimum("--learning-rate 5e-5 --schedule inverse_square_root") < 5e-5);
  CHECK(minimum("--learning-rate 5e-5 --minimum-learning-rate 4e-5") == 4e-5);
}

TEST_CASE("options that contradict each other are refused by their names") {
  check_refused({{"--steps 200 --warmup 200",
                  "the cosine schedule needs more --steps than --warmup; got 200 and 200; try more steps or "
                  "--warmup 20"},
                 {"--steps 200 --warmup 200 --schedule warmup_stable_decay",
                  "the warmup_stable_decay schedule needs more --steps than --warmup; got 200"},
                 {"--steps 201 --warmup 200", "nothing was thrown"},
                 {"--warmup 0 --schedule inverse_square_root",
                  "the inverse_square_root schedule needs a --warmup of at least 1; got 0"},
                 {"--learning-rate 1e-5 --minimum-learning-rate 1e-4",
                  "--minimum-learning-rate must be at most --learning-rate; got 0.0001 and 1e-05; try "
                  "--minimum-learning-rate 0"}},
                [](const std::vector<std::string>& arguments) {
                  return message_of<Error>([&] { Given(arguments).options.check(); });
                });
  TrainingOptions options;  // as of a file
  options.cooldown = 0;
  CHECK(message_of<Error>([&] { options.check(); }) == "--cooldown must be above 0 and at most 1; got 0");
}
