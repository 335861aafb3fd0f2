#include <tapeformer/autograd/config/json.h>
#include <tapeformer/examples/report/run_record.h>
#include <tapeformer/tests/examples/toy_task.h>

#include <filesystem>

using namespace tapeformer;

TEST_CASE("a run leaves a report, with its samples, its size and where it was resumed") {
  struct AttendingToy : ToyTask {
    Json attention_example() override {
      return {{"rows", {"a"}}, {"columns", {"b"}}, {"layers", Json::array()}};
    }
  };
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
  CHECK(has(read_file(folder.file(kReportPage)), "a toy's \\u003c/script> sample"));
}

TEST_CASE_FIXTURE(Logged, "a dry run reports what a run takes, and writes nothing") {
  ToyTask task;
  Progress progress(false);
  Session session(RunFolder(temporary.file("run")), {}, task, progress, {}, toy_compute());
  std::string text;
  dry_run(session, [&](const std::string& line) { text += line + "\n"; });
  for (const char* line :
       {"parameters           18\n", "memory: parameters   144 bytes\n", "memory: gradients    144 bytes\n",
        "memory: optimizer    288 bytes\n", "the run              12 steps in about 0 s"})
    CHECK_MESSAGE(has(text, line), line);
  CHECK_FALSE(std::filesystem::exists(temporary.file("run")));
}
