#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/examples/turned_clock.h>

#include <cmath>
#include <filesystem>

using namespace tapeformer;

namespace {

/// The result of a run.
struct Ending {
  Index steps = 0;
  std::vector<double> weights;
};

/// A toy whose batches change their size during a run, and take a time that the test sets.
class TimedToy : public ToyTask {
 public:
  explicit TimedToy(TurnedClock& clock, Ending* ending = nullptr)
      : ToyTask(0.25), clock_(clock), ending_(ending) {
    training.validate_every = 1000;
  }
  double trial_takes = 1e-3, run_takes = 1e-3;  ///< seconds of a batch, before and after the run begins
  std::vector<Index> asked;

  std::vector<Index> batch_changes() const override { return {training.steps / 4, training.steps / 2}; }
  Batch batch(Index number, BatchShare share) override {
    clock_.seconds += is_begun_ ? run_takes : trial_takes;
    asked.push_back(number);
    return ToyTask::batch(number, share);
  }
  void describe(const RunFolder& folder) override {
    is_begun_ = true;
    ToyTask::describe(folder);
  }
  Json conclude(Progress& progress) override {
    *ending_ = {training.steps, values_of(toy)};
    return ToyTask::conclude(progress);
  }

 private:
  TurnedClock& clock_;
  Ending* ending_;
  bool is_begun_ = false;
};

/// `change` makes the options.
Ending trained(const RunFolder& folder, const std::function<void(TimedToy&)>& change) {
  TurnedClock clock;
  Ending ending;
  start_training(folder, {}, [&](const Json*, Progress&) {
    auto task = std::make_unique<TimedToy>(clock, &ending);
    change(*task);
    return task;
  });
  return ending;
}

}  // namespace

TEST_CASE("timing steps leaves task and model as they were, to the bit") {
  const CapturedLog log;
  TurnedClock clock;
  TimedToy task(clock);
  task.training.time_budget = 1e-2;
  task.training.steps = 100;
  const std::vector<double> before = values_of(task.toy);
  Progress progress;
  const TemporaryFolder temporary;
  Session session(RunFolder(temporary.file("run")), {}, task, progress, {}, toy_compute());
  fit_time_budget(session);
  // 0.6 s with a reserve of 1.5 %, less the trials, at 1 ms per step.
  CHECK(std::abs(task.training.steps - (600 - 9 - static_cast<Index>(task.asked.size()))) <= 1);
  // At least three turns of each of the three shapes, one after another.
  std::vector<Index> shapes;
  for (const Index number : task.asked) {
    const Index shape = number < 25 ? 0 : number < 50 ? 1 : 2;
    if (shapes.empty() || shapes.back() != shape) shapes.push_back(shape);
  }
  CHECK(shapes.size() >= 9);
  for (std::size_t i = 0; i < 9; ++i) CHECK(shapes[i] == static_cast<Index>(i % 3));
  CHECK(values_of(task.toy) == before);
  for (const auto& [name, counter] : task.toy.named_counters()) CHECK(*counter == 0);
  CHECK_FALSE(std::filesystem::exists(temporary.file("run")));
}

TEST_CASE_FIXTURE(Logged, "a run with a budget is the run of its number of steps") {
  const Ending timed = trained(RunFolder(temporary.file("budget")), [](TimedToy& task) {
    task.training.time_budget = 0.002, task.training.steps = 50;
  });
  const Ending given = trained(RunFolder(temporary.file("steps")),
                               [&](TimedToy& task) { task.training.set_steps(timed.steps); });
  CHECK(timed.steps > 50);
  CHECK(given.steps == timed.steps);
  CHECK(given.weights == timed.weights);
}

TEST_CASE_FIXTURE(Logged, "the number of steps is corrected while the first steps do not depend on it") {
  const Ending corrected = trained(RunFolder(temporary.file("corrected")), [](TimedToy& task) {
    task.training.time_budget = 0.01, task.training.steps = 200, task.training.warmup = 12;
    task.trial_takes = 5e-3, task.run_takes = 2.5e-3;
  });
  CHECK(log.says("steps take 2.5 ms, not 5 ms: "));
  const std::string text = log.text(), repeats = "on any machine: ";
  const std::string again = text.substr(text.rfind(repeats) + repeats.size());
  Index steps = 0, warmup = 0, validate_every = 0;
  REQUIRE(std::sscanf(again.c_str(), "--steps %ld --warmup %ld --validate-every %ld", &steps, &warmup,
                      &validate_every) == 3);
  CHECK(corrected.steps == steps);
  CHECK(steps > 0.6 / 5e-3);  // more than trials as slow would let it have
  const Ending given = trained(RunFolder(temporary.file("given")), [&](TimedToy& task) {
    task.training.steps = steps, task.training.warmup = warmup;
    task.training.validate_every = validate_every;
  });
  CHECK(given.weights == corrected.weights);
}

TEST_CASE_FIXTURE(
    Logged,
    "a warm-up that has begun ends, and batches keep their shape so far, however slow the steps are") {
  const auto steps = [&](const char* name, Index warmup, Index validate_every) {
    return trained(RunFolder(temporary.file(name)),
                   [&](TimedToy& task) {
                     task.training.time_budget = 0.01, task.training.steps = 200,
                     task.training.warmup = warmup;
                     task.training.validate_every = validate_every;
                     task.run_takes = 0.1;
                   })
        .steps;
  };
  CHECK(steps("warm-up", 50, 12) == 51);
  const Index after_twelve = steps("shapes", 12, 1000);  // which is when the number is corrected
  CHECK(after_twelve / 4 == 13);
}

TEST_CASE_FIXTURE(RunCase, "checkpoints follow the validations of the corrected number of steps") {
  trained(folder, [](TimedToy& task) {
    task.training.time_budget = 0.01, task.training.steps = 200, task.training.warmup = 12;
    task.training.earlier_checkpoints = 1;
    task.trial_takes = 5e-3, task.run_takes = 2.5e-3;
  });
  const std::vector<Json> validations = metrics(folder, "validation_loss");
  REQUIRE(validations.size() >= 2);
  const Index last_but_one = validations[validations.size() - 2].at("step");
  CHECK(std::filesystem::exists(folder.file(format("checkpoint-{}.safetensors", last_but_one))));
}
