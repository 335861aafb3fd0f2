#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/option_table.h>
#include <tapeformer/examples/training_options.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <functional>

using namespace tapeformer;

namespace {

std::string refusal(const std::function<void(TrainingOptions&)>& spoil) {
  TrainingOptions options;
  spoil(options);
  return message_of<Error>([&] { options.check(); });
}

}  // namespace

TEST_SUITE("examples/training_options") {
  TEST_CASE("every option reaches command line, JSON, schedule and optimizer") {
    TrainingOptions options;
    CLI::App app;
    add_options(app, options);
    app.parse(
        "--steps 70 --learning-rate 0.5 --minimum-learning-rate 0.25 --warmup 9 --schedule constant "
        "--weight-decay 0.125 --beta1 0.75 --beta2 0.875 --keep-checkpoints 3 --steps 80");
    CHECK(options.keep_checkpoints == 3);
    CHECK(options.schedule_config().kind == "constant");
    CHECK(options.schedule_config().learning_rate == 0.5);
    CHECK(options.schedule_config().minimum == 0.25);
    CHECK(options.schedule_config().warmup_steps == 9);
    CHECK(options.schedule_config().total_steps == 80);
    CHECK(options.adamw_config().weight_decay == 0.125);
    CHECK(options.adamw_config().beta1 == 0.75);
    CHECK(options.adamw_config().beta2 == 0.875);

    nlohmann::ordered_json json;
    write_options(json, options);
    CHECK(json.size() == 17);
    TrainingOptions read;
    read_options(json, read, {});
    nlohmann::ordered_json again;
    write_options(again, read);
    CHECK(again == json);
    json.erase("keep_checkpoints");
    CHECK_THROWS_AS(read_options(json, read, {"steps"}), nlohmann::json::exception);
    TrainingOptions older;
    read_options(json, older, {"keep_checkpoints"});
    CHECK(older.keep_checkpoints == 0);
    CHECK(older.steps == 80);
  }

  TEST_CASE("what makes no sense is refused by its name") {
    const std::string positive = "--steps, --accumulate, --validate-every and --log-every must be positive";
    CHECK(refusal([](TrainingOptions& o) { o.steps = 0; }) == positive);
    CHECK(refusal([](TrainingOptions& o) { o.accumulate = 0; }) == positive);
    CHECK(refusal([](TrainingOptions& o) { o.validate_every = 0; }) == positive);
    CHECK(refusal([](TrainingOptions& o) { o.log_every = 0; }) == positive);
    const std::string negative =
        "--patience, --clip, --warmup, --checkpoint-every, --keep-checkpoints and --samples must not be "
        "negative";
    CHECK(refusal([](TrainingOptions& o) { o.patience = -1; }) == negative);
    CHECK(refusal([](TrainingOptions& o) { o.clip = -0.5; }) == negative);
    CHECK(refusal([](TrainingOptions& o) { o.warmup = -1; }) == negative);
    CHECK(refusal([](TrainingOptions& o) { o.checkpoint_every = -1; }) == negative);
    CHECK(refusal([](TrainingOptions& o) { o.keep_checkpoints = -1; }) == negative);
    CHECK(refusal([](TrainingOptions& o) { o.samples = -1; }) == negative);
    CHECK(refusal([](TrainingOptions& o) { o.learning_rate = 0; }) ==
          "--learning-rate must be positive; got 0.000000");
    CHECK(refusal([](TrainingOptions& o) { o.steps = 200; }) ==
          "the cosine schedule needs more --steps than --warmup; got 200 and 200");
    CHECK(refusal([](TrainingOptions& o) { o.schedule = "zigzag"; }).find("zigzag") != std::string::npos);
    CHECK(refusal([](TrainingOptions& o) { o.steps = 201; }) == "nothing was thrown");
  }
}
