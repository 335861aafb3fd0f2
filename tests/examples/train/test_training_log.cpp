#include <tapeformer/examples/shared/program.h>
#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/examples/turned_clock.h>

#include <regex>

using namespace tapeformer;

namespace {

/// A task whose parts take some seconds each, on a clock that stops otherwise.
class SlowTask : public ToyTask {
 public:
  explicit SlowTask(TurnedClock& clock) : clock_(clock) {}
  Batch batch(Index number, BatchShare share) override {
    clock_.seconds += 2;
    return ToyTask::batch(number, share);
  }
  Tensor loss(const Batch& batch) override {
    clock_.seconds += 4;
    return ToyTask::loss(batch);
  }
  Validation validate(Progress& progress) override {
    clock_.seconds += 60;
    return ToyTask::validate(progress);
  }
  double trial_loss(Index batches, Progress& progress) override {
    clock_.seconds += 30;
    progress.status("validating 1/1");
    return ToyTask::trial_loss(batches, progress);
  }
  std::vector<std::string> samples(Index batches, bool graphs) override {
    clock_.seconds += 40;
    return ToyTask::samples(batches, graphs);
  }

 private:
  TurnedClock& clock_;
};

}  // namespace

TEST_CASE_FIXTURE(RunCase, "wherever a run stops, it reports where its time went") {
  TurnedClock clock;
  SlowTask first(clock), second(clock);
  first.training.accumulate = second.training.accumulate = 2;
  first.training.samples = second.training.samples = 1;
  const auto times = [&] { return metrics(folder, "seconds").back().at("seconds"); };
  CHECK(start(folder, first, kOneStep) == kExitSuccess);
  CHECK(log.says("\ntime: 2 min"));
  CHECK(metrics(folder, "seconds").back().at("step") == 1);
  CHECK(times().at("samples") == 0.0);
  CHECK(resume(folder, second) == kExitSuccess);
  CHECK(metrics(folder, "seconds").size() == 2);
  CHECK(metrics(folder, "seconds").back().at("step") == 12);
  for (const auto& [phase, seconds] : {std::pair("batches", 22 * 2.0),
                                       {"forward", 22 * 4.0},
                                       {"validation", 3 * 60.0},
                                       {"checkpoints", 3 * 30.0},
                                       {"samples", 3 * 40.0}})
    CHECK_MESSAGE(times().at(phase) == seconds, phase);
}

TEST_CASE_FIXTURE(RunCase, "metrics count tokens and time over interruptions, kills included") {
  TurnedClock clock;
  SlowTask first(clock), second(clock), last(clock);
  const auto elapsed = [&] { return folder.metric_lines().back().value("elapsed", -1.0); };
  CHECK(start(folder, first, kOneStep) == kExitSuccess);
  CHECK(elapsed() == 2 + 4 + 2 + 30 + 60);  // with the next batch, the checkpoint, and weights to keep
  CHECK(resume(folder, second, kOneStep) == kExitSuccess);
  CHECK(elapsed() == 98 + 2 + 4 + 2 + 30 + 60);
  folder.append_metrics({{"step", 3}, {"train_loss", 1.0}, {"elapsed", 1000.0}});  // and then it was killed
  CHECK(resume(folder, last) == kExitSuccess);
  double before = 0;
  Index lines = 0;
  for (const Json& line : folder.metric_lines()) {
    if (!line.contains("tokens")) continue;
    CHECK(line.at("tokens") == 4 * line.at("step").get<Index>());
    CHECK(line.at("elapsed").get<double>() >= before);
    before = line.at("elapsed");
    ++lines;
    if (line.at("step") > 2) CHECK(before > 1000);
  }
  CHECK(lines == 9);  // six of training, three of validations
}

TEST_CASE("a terminal shows which batch of which step is computed, and keeps the lines of the log") {
  const TemporaryFolder temporary;
  const auto shown = [&](const char* name, Index accumulate, bool terminal) {
    const CapturedLog log;
    TurnedClock clock;
    SlowTask task(clock);
    task.training.accumulate = accumulate;
    CHECK(start(RunFolder(temporary.file(name)), task, TrainingControl(), terminal) == kExitSuccess);
    return log.text();
  };
  const std::string line = "\r\033[K";
  const std::string parts = shown("parts", 3, true), whole = shown("whole", 1, true),
                    kept = shown("kept", 3, false);
  // No line is left standing while something else is done.
  const std::string begin = line + "validating 1/1" + line + line + "writing the checkpoint" + line + line;
  CHECK(parts.find(begin + "step 0/12, batch 1/3") == 0);
  CHECK(whole.find(begin + "step 0/12" + line) == 0);
  CHECK_FALSE(has(whole, ", batch "));
  for (Index step = 2; step <= 12; step += 2) {
    const std::regex logged("step " + std::to_string(step) + "/12  loss [^\r\n]*\n");
    for (const std::string& text : {parts, whole, kept}) CHECK(std::regex_search(text, logged));
  }
  CHECK_FALSE(has(kept, "\r"));
  CHECK_FALSE(has(kept, ", batch "));
}

TEST_CASE_FIXTURE(Logged, "a plot is drawn below the log, only on a terminal") {
  TrainingControl control;
  control.plot = true;
  ToyTask drawn, plain;
  CHECK(start(RunFolder(temporary.file("drawn")), drawn, control, true) == kExitSuccess);
  const std::string text = log.text();
  CHECK(has(text, "\033[J"));
  CHECK(has(text, "step 2"));
  CHECK(start(RunFolder(temporary.file("plain")), plain, control, false) == kExitSuccess);
  CHECK(log.text().find("\033[J", text.size()) == std::string::npos);
}
