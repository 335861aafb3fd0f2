#include <tapeformer/autograd/config/json.h>
#include <tapeformer/examples/report/run_record.h>
#include <tapeformer/tests/examples/captured_log.h>
#include <tapeformer/tests/examples/metrics_lines.h>
#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

using namespace tapeformer;

namespace {

class AttendingToy : public ToyTask {
 public:
  Json attention_example() override {
    return {{"rows", {"a"}}, {"columns", {"b"}}, {"layers", Json::array()}};
  }
};

/// Every batch takes this many seconds.
class SlowToy : public ToyTask {
 public:
  explicit SlowToy(double seconds) : seconds_(seconds) {}
  void next_batch() override {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_));
    ToyTask::next_batch();
  }

 private:
  double seconds_;
};

}  // namespace

TEST_SUITE("examples/shared/training_report") {
  TEST_CASE("a training leaves a report, with its samples, its size and where it was resumed") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    TrainingControl control = limited(kOneStep);
    control.command = "train_toy --run run";
    AttendingToy first, second;
    first.training.samples = second.training.samples = 1;
    CHECK(start(folder, first, control) == kExitSuccess);
    CHECK(std::filesystem::exists(folder.file(kReportPage)));
    control.max_minutes = 0;
    CHECK(resume(folder, second, control) == kExitSuccess);
    const RunRecord run = read_run(folder.path());
    const Json& sessions = run.facts.at("sessions");
    REQUIRE(sessions.size() == 2);
    CHECK(sessions[0].at("command") == "train_toy --run run");
    CHECK(sessions[0].at("from_step") == 0);
    CHECK(sessions[1].at("from_step") == 1);
    CHECK(run.facts.at("attention").at("step") == 12);
    const Json& model = run.facts.at("model");
    CHECK(model.at("parameters") == kToyInputs * kToyClasses + kToyClasses);
    CHECK(model.at("memory").at("parameters") == 8 * (kToyInputs * kToyClasses + kToyClasses));
    CHECK(model.at("memory").at("optimizer") == 16 * (kToyInputs * kToyClasses + kToyClasses));
    CHECK(model.at("flops_a_token").get<double>() >= 4 * kToyInputs * kToyClasses);
    CHECK(read_file(folder.file(kReportPage)).find("a toy's \\u003c/script> sample") != std::string::npos);
  }

  TEST_CASE("metrics count tokens and time over a break") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder broken(temporary.file("broken"));
    ToyTask first, second;
    CHECK(start(broken, first, kOneStep) == kExitSuccess);
    CHECK(resume(broken, second) == kExitSuccess);
    const std::vector<Json> lines = broken.metric_lines();
    double tokens = 0, elapsed = 0;
    int counted = 0;
    for (const Json& line : lines) {
      if (!line.contains("train_loss")) continue;
      CHECK(line.at("tokens") == 4 * line.at("step").get<Index>());
      CHECK(line.at("gradient_norm").get<double>() > 0);
      CHECK(line.at("elapsed").get<double>() > elapsed);
      tokens = line.at("tokens"), elapsed = line.at("elapsed");
      ++counted;
    }
    CHECK(counted == 6);
    CHECK(tokens == 48);
  }

  TEST_CASE("time counts over breaks before the first line of the log, and with what the end takes") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    const auto elapsed = [&] { return folder.metric_lines().back().value("elapsed", -1.0); };
    SlowToy first(0.2), second(0.2), last(0);
    first.training.log_every = second.training.log_every = last.training.log_every = 12;
    CHECK(start(folder, first, kOneStep) == kExitSuccess);
    CHECK(elapsed() >= 0.2);
    CHECK(resume(folder, second, kOneStep) == kExitSuccess);
    CHECK(elapsed() >= 0.4);
    const double before = elapsed();
    CHECK(resume(folder, last) == kExitSuccess);
    CHECK(elapsed() > before);
    for (const Json& line : folder.metric_lines())
      if (line.contains("validation_loss")) CHECK(line.at("elapsed").get<double>() > before);
  }

  TEST_CASE("time counts that went into steps after the last checkpoint") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    ToyTask first, second;
    CHECK(start(folder, first, kOneStep) == kExitSuccess);
    folder.append_metrics({{"step", 2}, {"train_loss", 1.0}, {"elapsed", 1000.0}});  // and then it was killed
    CHECK(resume(folder, second) == kExitSuccess);
    for (const Json& line : folder.metric_lines())
      if (line.at("step") > 1 && line.contains("elapsed")) CHECK(line.at("elapsed").get<double>() > 1000);
  }

  TEST_CASE("a dry run says what a training takes, and writes nothing") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    ToyTask task;
    Progress progress(false);
    const RunFolder folder(temporary.file("run"));
    std::string text;
    TrainingRun(folder, {}, task, progress).dry_run([&](const std::string& line) { text += line + "\n"; });
    CHECK(text.find("parameters           18\n") != std::string::npos);
    CHECK(text.find("memory: parameters   144 bytes\n") != std::string::npos);
    CHECK(text.find("memory: gradients    144 bytes\n") != std::string::npos);
    CHECK(text.find("memory: optimizer    288 bytes\n") != std::string::npos);
    CHECK(text.find("the training         12 steps in about 0 s") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(folder.path()));
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
