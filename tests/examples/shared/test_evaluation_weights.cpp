#include <doctest/doctest.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/moving_average.h>
#include <tapeformer/tests/examples/captured_log.h>
#include <tapeformer/tests/examples/metrics_lines.h>
#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

#include <limits>
#include <utility>

using namespace tapeformer;

namespace {

/// Notes the loss of the weights whenever samples are asked for.
class SampledTask : public ToyTask {
 public:
  using ToyTask::ToyTask;
  std::vector<double> sampled;
  std::vector<std::string> samples(bool) override {
    sampled.push_back(true_loss());
    return {};
  }
};

SampledTask averaging(double decay) {
  SampledTask task(0.3);
  task.training.average_decay = decay;
  task.training.samples = 1;
  task.training.keep_checkpoints = 1;
  return task;
}

std::vector<double> numbers_in(const std::string& path, const std::string& tensor) {
  return SafetensorsFile::open(path).tensor(tensor).to_vector<double>();
}

}  // namespace

TEST_SUITE("examples/shared/evaluation_weights") {
  TEST_CASE("with an average a run trains as without, and validates, shows and keeps the average") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder plain(temporary.file("plain")), folder(temporary.file("averaged"));
    ToyTask without;
    SampledTask task = averaging(0.9);
    task.toy = ToyModel();
    CHECK(start(plain, without) == kExitSuccess);
    CHECK(start(folder, task) == kExitSuccess);
    CHECK(weights_in(folder, "checkpoint.safetensors") == weights_in(plain, "checkpoint.safetensors"));
    CHECK(metrics(folder, "train_loss") == metrics(plain, "train_loss"));

    ToyTask by_hand;
    OptimizerConfig config = by_hand.training.optimizer;
    const auto optimizer = config.make(by_hand.toy.parameters());
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
      CHECK(numbers_in(folder.file(name), "linear.weight") == expected);
    CHECK(numbers_in(folder.file("checkpoint.safetensors"), "moving_average.value.linear.weight") ==
          expected);
    CHECK(task.concluded == std::vector<double>{losses[2]});
  }

  TEST_CASE("stopped after every step, and gone back from a bad one, a run with an average is the same") {
    const auto make_task = [] {
      SampledTask task = averaging(0.9);
      task.training.checkpoint_every = 5;
      task.training.non_finite = "go-back";
      task.loss_factor = std::numeric_limits<double>::quiet_NaN();
      task.from_step = 8;
      task.to_step = 9;
      return task;
    };
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder whole(temporary.file("whole")), broken(temporary.file("broken"));
    SampledTask at_once = make_task();
    CHECK(start(whole, at_once) == kExitSuccess);
    CHECK(log.says("; went back to step 5"));
    SampledTask first = make_task();
    start(broken, first, kOneStep);
    for (int part = 0; part < 20 && !broken.checkpoint_state().at("finished").get<bool>(); ++part) {
      SampledTask task = make_task();
      resume(broken, task, kOneStep);
    }
    for (const char* name : {"weights.safetensors", "checkpoint.safetensors"})
      CHECK((read_file(whole.file(name)) == read_file(broken.file(name))));  // binary: not to be shown
    CHECK(metrics(whole, "step") == metrics(broken, "step"));
  }

  TEST_CASE("a validation that fails leaves the weights that are trained") {
    struct FailingTask : SampledTask {
      FailingTask() : SampledTask(averaging(0.9)) { training.non_finite = "go-back"; }
      int times = 0, fails = 0;
      Validation validate(Progress& progress) override {
        Validation result = ToyTask::validate(progress);
        if (++times == fails) result.loss = std::numeric_limits<double>::quiet_NaN();
        return result;
      }
    };
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run")), other(temporary.file("other"));
    FailingTask failing, bad_step;
    failing.fails = 2;
    bad_step.loss_factor = std::numeric_limits<double>::quiet_NaN();
    bad_step.from_step = 7, bad_step.to_step = 8;
    CHECK(start(folder, failing) == kExitSuccess);
    CHECK(log.says("step 8: the validation loss is nan; went back to step 4"));
    CHECK(start(other, bad_step) == kExitSuccess);
    for (const char* name : {"weights.safetensors", "checkpoint.safetensors"})
      CHECK(weights_in(folder, name) == weights_in(other, name));
  }
}
