#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/optim/moving_average.h>
#include <tapeformer/tests/examples/toy_task.h>

#include <filesystem>
#include <limits>

using namespace tapeformer;

namespace {

/// Notes the loss of the weights whenever samples are asked for.
class SampledTask : public ToyTask {
 public:
  using ToyTask::ToyTask;
  std::vector<double> sampled;
  std::vector<std::string> samples(Index, bool) override {
    sampled.push_back(true_loss());
    return {};
  }
};

SampledTask averaging() {
  SampledTask task(0.3);
  task.training.average_decay = 0.9;
  task.training.samples = 1;
  task.training.keep_checkpoints = 1;
  return task;
}

std::vector<double> values_in(const std::string& path, const std::string& tensor) {
  return SafetensorsFile::open(path).tensor(tensor).to_vector<double>();
}

}  // namespace

TEST_CASE_FIXTURE(RunCase, "the best weights are kept, and patience ends a run that stops improving") {
  const RunFolder until_best(temporary.file("best"));
  const auto configured = [] {
    ToyTask task;
    task.training.validate_every = 2;
    task.training.samples = 2;
    task.training.patience = 2;
    task.validations = {5, 6, 4, 4, 4.5, 3};
    return task;
  };
  ToyTask task = configured();
  CHECK(start(folder, task) == kExitSuccess);
  CHECK(log.says("no better loss in 2 validations: stopped early"));
  CHECK(log.says(
      "step 6: validation loss 4.0000, perplexity 54.598, as a toy does it, the best so far, after"));
  CHECK(log.says("step 8: validation loss 4.0000, perplexity 54.598, as a toy does it, after"));
  CHECK(log.says("trained 10 steps in "));
  CHECK(log.says("best validation loss 4.0000; weights in " + folder.file("weights.safetensors")));
  CHECK(task.shown == 5);
  const auto lines = metrics(folder, "validation_loss");
  REQUIRE(lines.size() == 5);
  CHECK(lines[2] == Json({{"step", 6},
                          {"validation_loss", 4.0},
                          {"perplexity", std::exp(4.0)},
                          {"times", 3},
                          {"best", true},
                          {"tokens", 24},
                          {"samples", {"a toy's </script> sample"}}}));
  CHECK(lines[3].at("best") == false);
  CHECK(folder.checkpoint_state().at("finished") == true);

  ToyTask best;  // which stops where the other one was best
  best.training = task.training;
  best.training.samples = 0;
  CHECK(start(until_best, best, kOneStep) == kExitSuccess);
  CHECK(log.says("; weights in " + until_best.file("weights.safetensors")));  // before any validation
  for (Index step = 1; step < 6; ++step) resume(until_best, best, kOneStep);
  CHECK(weights_in(folder) == weights_in(until_best, "checkpoint.safetensors"));
  REQUIRE(task.concluded.size() == 1);
  CHECK(task.concluded[0] == best.true_loss());
  CHECK(metrics(folder, "true_loss") == std::vector<Json>{{{"step", 10}, {"true_loss", task.concluded[0]}}});
  check_resumes(configured);
}

TEST_CASE_FIXTURE(RunCase, "the weights of the last validations are kept on request") {
  const RunFolder none(temporary.file("none"));
  ToyTask task, plain;
  task.training.validate_every = plain.training.validate_every = 1;
  task.training.keep_checkpoints = 2;
  task.training.minimum_learning_rate = plain.training.minimum_learning_rate = 0.01;
  task.validations = plain.validations = {12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1};
  CHECK(start(folder, task, kOneStep) == kExitSuccess);
  write_bytes(folder.file("weights-5-mine.safetensors"), "somebody's");
  write_bytes(folder.file("weights-99.safetensors"), "of a run that was killed");
  folder.write(kEvaluationFile, "of worse weights");
  const auto is_there = [&](const std::string& at) {
    return std::filesystem::exists(folder.file("weights-" + at + ".safetensors"));
  };
  for (Index step = 1; step < 12; ++step) {
    resume(folder, task, kOneStep);
    CHECK(is_there(std::to_string(step)));
    CHECK(is_there(std::to_string(step + 1)));
    CHECK_FALSE(is_there(std::to_string(step - 1)));
  }
  CHECK(is_there("5-mine"));
  CHECK_FALSE(is_there("99"));
  CHECK_FALSE(std::filesystem::exists(folder.file(kEvaluationFile)));
  CHECK(weights_in(folder, "weights-12.safetensors") == weights_in(folder));
  CHECK(weights_in(folder, "weights-11.safetensors") != weights_in(folder));
  CHECK(start(none, plain) == kExitSuccess);
  CHECK_FALSE(std::filesystem::exists(none.file("weights-12.safetensors")));
  CHECK(weights_in(none) == weights_in(folder));
}

TEST_CASE_FIXTURE(Logged,
                  "with an average a run trains as without, and validates, shows and keeps the average") {
  const RunFolder plain(temporary.file("plain")), folder(temporary.file("averaged"));
  ToyTask without;
  SampledTask task = averaging();
  task.toy = ToyModel();
  CHECK(start(plain, without) == kExitSuccess);
  CHECK(start(folder, task) == kExitSuccess);
  CHECK(weights_in(folder, "checkpoint.safetensors") == weights_in(plain, "checkpoint.safetensors"));
  CHECK(metrics(folder, "train_loss") == metrics(plain, "train_loss"));

  ToyTask by_hand;
  const auto optimizer = by_hand.training.optimizer.make(by_hand.toy.parameters());
  MovingAverage average(by_hand.toy.parameters(), 0.9);
  const Schedule schedule(by_hand.training.schedule_config());
  std::vector<double> losses;
  for (Index step = 0; step < 12; ++step) {
    optimizer->clear_gradients();
    Tape tape;
    tape.backward(by_hand.loss_of(by_hand.toy, 4 * step, 4));
    optimizer->clipped_step(schedule(step), 1, by_hand.training.clip);
    average.include_weights();
    if (step % 4 != 3) continue;
    average.exchange_weights();
    losses.push_back(by_hand.true_loss());
    if (step < 11) average.exchange_weights();
  }
  std::vector<double> validated;
  for (const Json& line : metrics(folder, "validation_loss"))
    validated.push_back(line.at("validation_loss").get<double>());
  CHECK(validated == losses);
  CHECK(task.sampled == losses);
  CHECK(losses[2] < losses[1]);  // the best weights are the last
  const std::vector<double> expected = weights_of(by_hand.toy).front().second.to_vector<double>();
  for (const char* name : {"weights.safetensors", "weights-12.safetensors"})
    CHECK(values_in(folder.file(name), "linear.weight") == expected);
  CHECK(values_in(folder.file("checkpoint.safetensors"), "moving_average.value.linear.weight") == expected);
  CHECK(task.concluded == std::vector<double>{losses[2]});
}

TEST_CASE("stopped after every step, a run with an average that skips a bad step is the same") {
  check_resumes([] {
    SampledTask task = averaging();
    task.training.checkpoint_every = 5;
    task.training.non_finite = "skip";
    task.loss_factor = std::numeric_limits<double>::quiet_NaN();
    task.from_step = 8;
    task.to_step = 9;
    return task;
  });
}

TEST_CASE_FIXTURE(Logged, "a validation that fails leaves the trained weights in place") {
  SampledTask failing = averaging(), whole = averaging();
  failing.training.schedule = whole.training.schedule = "constant";
  failing.validations = {std::numeric_limits<double>::quiet_NaN()};
  whole.training.steps = 4;
  CHECK_THROWS_AS(start(RunFolder(temporary.file("failing")), failing), BadStep);
  CHECK(start(RunFolder(temporary.file("whole")), whole) == kExitSuccess);
  CHECK(failing.toy.named_parameters().front().second.value().to_vector<double>() ==
        values_in(temporary.file("whole/checkpoint.safetensors"), "model.linear.weight"));
}
