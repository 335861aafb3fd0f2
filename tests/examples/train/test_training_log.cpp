#include <tapeformer/examples/shared/program.h>
#include <tapeformer/tests/examples/toy_task.h>

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <thread>

using namespace tapeformer;

namespace {

/// A task whose parts take some milliseconds each.
class SlowTask : public ToyTask {
 public:
  int batch_takes = 2, loss_takes = 4, validation_takes = 60, trial_takes = 30, samples_take = 40;

  Batch batch(Index number, BatchShare share) override {
    wait(batch_takes);
    return ToyTask::batch(number, share);
  }
  Tensor loss(const Batch& batch) override {
    wait(loss_takes);
    return ToyTask::loss(batch);
  }
  Validation validate(Progress& progress) override {
    wait(validation_takes);
    return ToyTask::validate(progress);
  }
  double trial_loss(Index batches, Progress& progress) override {
    wait(trial_takes);
    progress.status("validating 1/1");
    return ToyTask::trial_loss(batches, progress);
  }
  std::vector<std::string> samples(Index batches, bool graphs) override {
    wait(samples_take);
    return ToyTask::samples(batches, graphs);
  }

 private:
  static void wait(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }
};

SlowTask with_slow_batches(int milliseconds) {
  SlowTask task;
  task.batch_takes = milliseconds;
  task.loss_takes = task.validation_takes = task.trial_takes = task.samples_take = 0;
  return task;
}

}  // namespace

TEST_SUITE("examples/train/training_log") {
  TEST_CASE("at the end, and wherever a run stops, it tells where its time went") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    SlowTask first, second;
    first.training.accumulate = second.training.accumulate = 2;
    first.training.samples = second.training.samples = 1;
    CHECK(start(folder, first, kOneStep) == kExitSuccess);
    CHECK(log.says("\ntime: of "));
    const Json stopped = metrics(folder, "seconds").back();
    CHECK(stopped.at("step") == 1);
    CHECK(stopped.at("seconds").at("samples") == 0.0);
    CHECK(resume(folder, second) == kExitSuccess);
    const std::vector<Json> told = metrics(folder, "seconds");
    REQUIRE(told.size() == 2);
    CHECK(told[1].at("step") == 12);
    const std::pair<const char*, double> least[] = {{"batches", 22 * 0.002},
                                                    {"forward", 22 * 0.004},
                                                    {"validation", 3 * 0.06},
                                                    {"checkpoints", 3 * 0.03},
                                                    {"samples", 3 * 0.04}};
    for (const auto& [phase, seconds] : least) {
      CAPTURE(phase);
      CHECK(told[1].at("seconds").at(phase).get<double>() >= seconds);
    }
  }

  TEST_CASE("metrics count tokens and time over breaks, those that were killed included") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    SlowTask first = with_slow_batches(50), second = with_slow_batches(50), last = with_slow_batches(0);
    const auto elapsed = [&] { return folder.metric_lines().back().value("elapsed", -1.0); };
    CHECK(start(folder, first, kOneStep) == kExitSuccess);
    CHECK(elapsed() >= 0.05);
    CHECK(resume(folder, second, kOneStep) == kExitSuccess);
    CHECK(elapsed() >= 0.1);
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
      SlowTask task = with_slow_batches(0);
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
    CHECK(whole.find(", batch ") == std::string::npos);
    for (Index step = 2; step <= 12; step += 2) {
      const std::string logged = "step " + std::to_string(step) + "/12  loss ";
      CAPTURE(logged);
      for (const std::string& text : {parts, whole, kept}) {
        bool is_kept = false;
        for (std::size_t at = text.find(logged); at != std::string::npos; at = text.find(logged, at + 1)) {
          const std::size_t stop = text.find_first_of("\r\n", at);
          is_kept = is_kept || text[stop] == '\n';
        }
        CHECK(is_kept);
      }
    }
    CHECK(kept.find("\r") == std::string::npos);
    CHECK(kept.find(", batch ") == std::string::npos);
  }

  TEST_CASE("a plot stands below the log, of a terminal alone") {
    const TemporaryFolder temporary;
    TrainingControl control;
    control.plot = true;
    ToyTask drawn, plain;
    const CapturedLog log;
    CHECK(start(RunFolder(temporary.file("drawn")), drawn, control, true) == kExitSuccess);
    const std::string text = log.text();
    CHECK(text.find("\033[J") != std::string::npos);
    CHECK(text.find("step 2") != std::string::npos);
    CHECK(start(RunFolder(temporary.file("plain")), plain, control, false) == kExitSuccess);
    CHECK(log.text().find("\033[J", text.size()) == std::string::npos);
  }
}
