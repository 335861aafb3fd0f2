#include <tapeformer/examples/shared/program.h>
#include <tapeformer/tests/examples/captured_log.h>
#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

#include <doctest/doctest.h>

#include <string>

using namespace tapeformer;

TEST_SUITE("examples/training_devices") {
  TEST_CASE("the next batch is made while the step is computed, but none behind the last step") {
    class OrderedTask : public ToyTask {
     public:
      std::string order;
      void next_batch() override {
        ToyTask::next_batch();
        order += "b";
      }
      BatchLoss batch_loss() override {
        order += "l";
        return ToyTask::batch_loss();
      }
      void prepare_batch() override { order += "p"; }
      Validation validate(Progress& progress) override {
        order += "v";
        return ToyTask::validate(progress);
      }
    };
    const CapturedLog log;
    const TemporaryFolder temporary;
    OrderedTask task;
    task.training.steps = 4, task.training.warmup = 1, task.training.accumulate = 2;
    task.training.validate_every = 2;
    CHECK(start(RunFolder(temporary.file("run")), task) == kExitSuccess);
    CHECK(task.order ==
          "blblp"
          "blblpv"
          "blblp"
          "blblv");
  }

  TEST_CASE("the folder says where the run computed, and resuming elsewhere says that it does") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    ToyTask task;
    CHECK(start(folder, task, 1e-12) == kExitSuccess);
    Json state = folder.checkpoint_state();
    CHECK(state.at("device") == default_device().text());
    CHECK(state.at("precision") == "f32");
    for (const char* older : {"device", "precision"}) state.erase(older);
    Progress progress;
    TrainingRun same(folder, {}, task, progress);
    same.resume(folder.checkpoint_state());
    CHECK_FALSE(log.says("up to here"));
    state["precision"] = "tf32";
    TrainingRun other(folder, {}, task, progress);
    other.resume(state);
    CHECK(log.says("note: the run went on cpu in tf32 up to here"));
  }
}
