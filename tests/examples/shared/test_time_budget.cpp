#include <tapeformer/tests/examples/captured_log.h>
#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace tapeformer;

namespace {

/// A toy whose batches change their size in mid-run; it keeps the steps that were asked for.
class ChangingToy : public ToyTask {
 public:
  ChangingToy() : ToyTask(0.25) { training.validate_every = 1000; }
  std::vector<Index> batch_changes() const override { return {training.steps / 4, training.steps / 2}; }
  void go_to_step(Index step) override { asked.push_back(step); }
  std::vector<Index> asked;
};

std::vector<double> weights_of(ToyTask& task) {
  std::vector<double> values;
  for (const auto& [name, parameter] : task.toy.named_parameters())
    for (Index i = 0; i < parameter.value().elements(); ++i) values.push_back(parameter.value().at(i));
  return values;
}

/// What a training came to.
struct Ending {
  Index steps = 0;
  std::vector<double> weights;
};

class ObservedToy : public ChangingToy {
 public:
  explicit ObservedToy(Ending& ending) : ending_(ending) {}
  /// Each batch takes that long before the run begins.
  double seconds_of_trials = 0;
  void next_batch() override {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_of_trials));
    ChangingToy::next_batch();
  }
  void describe(const RunFolder& folder) override {
    seconds_of_trials = 0;
    ChangingToy::describe(folder);
  }
  Json conclude(Progress& progress) override {
    ending_ = {training.steps, weights_of(*this)};
    return ChangingToy::conclude(progress);
  }

 private:
  Ending& ending_;
};

/// `change` makes the options.
Ending trained(const RunFolder& folder, const std::function<void(ObservedToy&)>& change) {
  Ending ending;
  start_training(folder, {}, [&](const Json*, Progress&) {
    auto task = std::make_unique<ObservedToy>(ending);
    change(*task);
    return task;
  });
  return ending;
}

}  // namespace

TEST_SUITE("examples/shared/time_budget") {
  TEST_CASE("timing steps leaves task and model as they were, to the bit") {
    const CapturedLog log;
    ChangingToy task;
    task.training.time_budget = 1e-3;
    task.training.steps = 100;
    const std::vector<double> before = weights_of(task);
    Json state_before, state_after;
    task.save_state(state_before);
    Progress progress;
    const TemporaryFolder temporary;
    TrainingRun(RunFolder(temporary.file("run")), {}, task, progress).fit_budget();
    CHECK(task.training.steps != 100);
    CHECK(task.asked.size() >= 9);  // at least three turns
    for (std::size_t i = 0; i < task.asked.size(); ++i)
      CHECK(task.asked[i] == std::vector<Index>{0, 25, 50}[i % 3]);
    CHECK(weights_of(task) == before);
    for (const auto& [name, counter] : task.toy.named_counters()) CHECK(*counter == 0);
    task.save_state(state_after);
    CHECK(state_after == state_before);
    CHECK_FALSE(std::filesystem::exists(temporary.file("run")));
  }

  TEST_CASE("a run with a budget is the run of its number of steps") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const Ending timed = trained(RunFolder(temporary.file("budget")), [](ObservedToy& task) {
      task.training.time_budget = 0.001, task.training.steps = 50;
    });
    const Ending given = trained(RunFolder(temporary.file("steps")),
                                 [&](ObservedToy& task) { task.training.set_steps(timed.steps); });
    CHECK(timed.steps > 0);
    CHECK(given.steps == timed.steps);
    CHECK(given.weights == timed.weights);
  }

  TEST_CASE("the number of steps is corrected while the first ones are as those of any number") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const Ending corrected = trained(RunFolder(temporary.file("corrected")), [](ObservedToy& task) {
      task.training.time_budget = 0.02, task.training.steps = 200, task.training.warmup = 12;
      task.seconds_of_trials = 5e-3;
    });
    CHECK(log.says("steps take "));
    const std::string text = log.text(), repeats = "on any machine: ";
    const std::string again = text.substr(text.rfind(repeats) + repeats.size());
    Index steps = 0, warmup = 0, validate_every = 0;
    REQUIRE(std::sscanf(again.c_str(), "--steps %ld --warmup %ld --validate-every %ld", &steps, &warmup,
                        &validate_every) == 3);
    CHECK(corrected.steps == steps);
    CHECK(steps > 1.2 / 5e-3);  // more than trials as slow would let it have
    const Ending given = trained(RunFolder(temporary.file("given")), [&](ObservedToy& task) {
      task.training.steps = steps, task.training.warmup = warmup;
      task.training.validate_every = validate_every;
    });
    CHECK(given.weights == corrected.weights);
  }
}
