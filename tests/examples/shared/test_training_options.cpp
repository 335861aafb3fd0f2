#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/examples/shared/training_options.h>
#include <tapeformer/tests/examples/arguments.h>
#include <tapeformer/tests/reference/config_case.h>

#include <functional>
#include <iterator>
#include <sstream>

using namespace tapeformer;

namespace {

std::string refusal(const std::function<void(TrainingOptions&)>& spoil) {
  TrainingOptions options;
  spoil(options);
  return message_of<Error>([&] { options.check(); });
}

/// Reads arguments between spaces.
void read_words(const CommandLine& line, const std::string& text) {
  std::istringstream words(text);
  read(line, {std::istream_iterator<std::string>(words), {}});
}

}  // namespace

TEST_SUITE("examples/shared/training_options") {
  TEST_CASE("options reach schedule and optimizer") {
    TrainingOptions options;
    const CommandLine line;
    add_options(line, options);
    read_words(
        line,
        "--steps 70 --learning-rate 0.5 --minimum-learning-rate 0.25 --warmup 9 --schedule constant "
        "--weight-decay 0.125 --beta1 0.75 --beta2 0.875 --keep-checkpoints 3 --steps 80 --recompute-layers");
    CHECK(options.keep_checkpoints == 3);
    CHECK(options.recompute_layers);
    CHECK_FALSE(TrainingOptions().recompute_layers);
    CHECK(options.schedule_config().kind == "constant");
    CHECK(options.schedule_config().learning_rate == 0.5);
    CHECK(options.schedule_config().minimum == 0.25);
    CHECK(options.schedule_config().warmup_steps == 9);
    CHECK(options.schedule_config().total_steps == 80);
    CHECK(options.optimizer.option("weight_decay") == 0.125);
    CHECK(options.optimizer.option("beta1") == 0.75);
    CHECK(options.optimizer.option("beta2") == 0.875);
  }

  TEST_CASE("every option survives JSON, and older runs lack some") { check_every_field<TrainingOptions>(); }

  TEST_CASE("another optimizer has its own defaults and options; those of others are refused") {
    const auto options = [](const std::string& arguments) {
      TrainingOptions read;
      const CommandLine line;
      add_options(line, read);
      read_words(line, arguments);
      read.refuse_ignored(line);
      return read;
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
    CHECK(message_of<Error>([&] { options("--momentum 0.5"); }) ==
          "--momentum has no effect with --optimizer adamw; leave it out");
    CHECK(message_of<Error>([&] { options("--optimizer sgd --beta1 0.5"); }) ==
          "--beta1 has no effect with --optimizer sgd; leave it out");
  }

  TEST_CASE("a number that is none, or not in its type's range, is refused by its option's name") {
    const auto refused = [](const std::string& arguments) {
      return message_of<Error>([&] {
        TrainingOptions options;
        const CommandLine line;
        add_options(line, options);
        read_words(line, arguments);
      });
    };
    CHECK(refused("--steps many") == "--steps must be a whole number; got many");
    CHECK(refused("--steps 1.5") == "--steps must be a whole number; got 1.5");
    CHECK(refused("--steps 9223372036854775808") == "--steps is out of range; got 9223372036854775808");
    CHECK(refused("--steps 9223372036854775807") == "nothing was thrown");
    CHECK(refused("--seed=-1") == "--seed must be a whole number, not negative; got -1");
    CHECK(refused("--seed 18446744073709551615") == "nothing was thrown");
    for (const std::string number : {"nan", "inf", "-inf", "0.1x"})
      CHECK(refused("--clip=" + number) == "--clip must be a finite number; got " + number);
    CHECK(refused("--clip 1e999") == "--clip is out of range; got 1e999");
    CHECK(refused("--clip 1e-3") == "nothing was thrown");
  }

  TEST_CASE("the warm-up is at most a tenth of the steps, unless it is given") {
    const auto warmup = [](const std::string& arguments) {
      TrainingOptions options;
      const CommandLine line;
      add_options(line, options);
      read_words(line, arguments);
      options.adapt_warmup(line);
      options.check();
      return options.warmup;
    };
    CHECK(warmup("") == 200);
    CHECK(warmup("--steps 500") == 50);
    CHECK(warmup("--steps 5") == 0);
    CHECK(warmup("--steps 5 --schedule inverse_square_root") == 1);
    CHECK(warmup("--steps 500 --warmup 100") == 100);
  }

  TEST_CASE("an option that the schedule does not look at is refused") {
    const auto refused = [](const std::string& arguments) {
      return message_of<Error>([&] {
        TrainingOptions options;
        const CommandLine line;
        add_options(line, options);
        read_words(line, arguments);
        options.refuse_ignored(line);
      });
    };
    CHECK(refused("--schedule constant --minimum-learning-rate 0") ==
          "--minimum-learning-rate has no effect with --schedule constant; leave it out");
    CHECK(refused("--minimum-learning-rate 0") == "nothing was thrown");
    CHECK(refused("--schedule inverse_square_root") == "nothing was thrown");
  }

  TEST_CASE("what makes no sense is refused by its name") {
    const std::string positive = " must be positive; got 0", negative = " must not be negative; got -1";
    CHECK(refusal([](TrainingOptions& o) { o.steps = 0; }) == "--steps" + positive);
    CHECK(refusal([](TrainingOptions& o) { o.accumulate = 0; }) == "--accumulate" + positive);
    CHECK(refusal([](TrainingOptions& o) { o.validate_every = 0; }) == "--validate-every" + positive);
    CHECK(refusal([](TrainingOptions& o) { o.log_every = 0; }) == "--log-every" + positive);
    CHECK(refusal([](TrainingOptions& o) { o.patience = -1; }) == "--patience" + negative);
    CHECK(refusal([](TrainingOptions& o) { o.clip = -0.5; }) == "--clip must not be negative; got -0.5");
    CHECK(refusal([](TrainingOptions& o) { o.warmup = -1; }) == "--warmup" + negative);
    CHECK(refusal([](TrainingOptions& o) { o.checkpoint_every = -1; }) == "--checkpoint-every" + negative);
    CHECK(refusal([](TrainingOptions& o) { o.keep_checkpoints = -1; }) == "--keep-checkpoints" + negative);
    CHECK(refusal([](TrainingOptions& o) { o.samples = -1; }) == "--samples" + negative);
    CHECK(refusal([](TrainingOptions& o) { o.learning_rate = 0; }) == "--learning-rate" + positive);
    CHECK(refusal([](TrainingOptions& o) { o.steps = 200; }) ==
          "the cosine schedule needs more --steps than --warmup; got 200 and 200; try --warmup 20");
    CHECK(refusal([](TrainingOptions& o) { o.schedule = "zigzag"; }).find("zigzag") != std::string::npos);
    CHECK(refusal([](TrainingOptions& o) { o.steps = 201; }) == "nothing was thrown");
  }
}
