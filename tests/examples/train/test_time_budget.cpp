#include <tapeformer/tests/examples/toy_task.h>

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
  Batch batch(Index number, BatchShare share) override {
    asked.push_back(number);
    return ToyTask::batch(number, share);
  }
  std::vector<Index> asked;
};

std::vector<double> weights_of(ToyTask& task) {
  std::vector<double> values;
  for (const auto& [name, parameter] : task.toy.named_parameters())
    for (Index i = 0; i < parameter.value().elements(); ++i) values.push_back(parameter.value().at(i));
  return values;
}

/// What a run came to.
struct Ending {
  Index steps = 0;
  std::vector<double> weights;
};

class ObservedToy : public ChangingToy {
 public:
  explicit ObservedToy(Ending& ending) : ending_(ending) {}
  /// Each batch takes that long before the run begins.
  double seconds_of_trials = 0;
  Batch batch(Index number, BatchShare share) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_of_trials));
    return ChangingToy::batch(number, share);
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

TEST_SUITE("examples/train/time_budget") {
  TEST_CASE("timing steps leaves task and model as they were, to the bit") {
    const CapturedLog log;
    ChangingToy task;
    task.training.time_budget = 1e-3;
    task.training.steps = 100;
    const std::vector<double> before = weights_of(task);
    Progress progress;
    const TemporaryFolder temporary;
    Session session(RunFolder(temporary.file("run")), {}, task, progress, {}, toy_compute());
    fit_time_budget(session);
    CHECK(task.training.steps != 100);
    // At least three turns of each of the three shapes, one after another.
    std::vector<Index> shapes;
    for (const Index number : task.asked) {
      const Index shape = number < 25 ? 0 : number < 50 ? 1 : 2;
      if (shapes.empty() || shapes.back() != shape) shapes.push_back(shape);
    }
    CHECK(shapes.size() >= 9);
    for (std::size_t i = 0; i < 9; ++i) CHECK(shapes[i] == static_cast<Index>(i % 3));
    CHECK(weights_of(task) == before);
    for (const auto& [name, counter] : task.toy.named_counters()) CHECK(*counter == 0);
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
