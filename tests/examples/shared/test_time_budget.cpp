#include <tapeformer/tests/examples/captured_log.h>
#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
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
  Json conclude(Progress& progress) override {
    ending_ = {training.steps, weights_of(*this)};
    return ChangingToy::conclude(progress);
  }

 private:
  Ending& ending_;
};

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
    const Index steps = TrainingRun(RunFolder(temporary.file("run")), {}, task, progress).steps_in_budget();
    CHECK(steps >= 1);
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
    const auto trained = [&](const char* name, double budget, Index steps) {
      Ending ending;
      start_training(RunFolder(temporary.file(name)), {}, [&](const Json*, Progress&) {
        auto task = std::make_unique<ObservedToy>(ending);
        task->training.time_budget = budget;
        task->training.steps = steps;
        return task;
      });
      return ending;
    };
    const Ending timed = trained("budget", 0.001, 50), given = trained("steps", 0, timed.steps);
    CHECK(timed.steps > 0);
    CHECK(given.steps == timed.steps);
    CHECK(given.weights == timed.weights);
  }
}
