#include <doctest/doctest.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/tests/examples/captured_log.h>
#include <tapeformer/tests/examples/metrics_lines.h>
#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

using namespace tapeformer;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A task whose ninth step goes wrong, with checkpoints at steps 5 and 10.
ToyTask spoilt(const std::string& policy, double factor = kNan) {
  ToyTask task(0.3);
  task.training.checkpoint_every = 5;
  task.training.non_finite = policy;
  task.loss_factor = factor;
  task.from_step = 8;
  task.to_step = 9;
  return task;
}

/// One whose 70th of 90 steps has a loss a hundred times as large.
ToyTask spiked(const std::string& policy) {
  ToyTask task;
  task.training.steps = 90;
  task.training.validate_every = 30;
  task.training.loss_spike = policy;
  task.loss_factor = 100;
  task.from_step = 69;
  task.to_step = 70;
  return task;
}

/// Runs the task whole and stopped after every step, and expects the same files.
void check_resumes(const std::function<ToyTask()>& make_task) {
  const CapturedLog log;
  const TemporaryFolder temporary;
  const RunFolder whole(temporary.file("whole")), broken(temporary.file("broken"));
  ToyTask at_once = make_task();
  CHECK(start(whole, at_once) == kExitSuccess);
  ToyTask first = make_task();
  start(broken, first, kOneStep);
  for (int part = 0; part < 100 && !broken.checkpoint_state().at("finished").get<bool>(); ++part) {
    ToyTask task = make_task();
    resume(broken, task, kOneStep);
  }
  for (const char* name : {"weights.safetensors", "checkpoint.safetensors"}) {
    CHECK((read_file(whole.file(name)) == read_file(broken.file(name))));  // binary: not to be shown
  }
  CHECK(metrics(whole, "step") == metrics(broken, "step"));
}

}  // namespace

TEST_SUITE("examples/shared/training_guard") {
  TEST_CASE("parameters whose gradients are exactly zero are named after the second step") {
    const std::string note =
        "note: no gradient, or exactly zero, in the first 2 steps, so these are not trained: linear.weight, "
        "linear.bias\n";
    for (const Index zero_steps : {0, 1, 2}) {
      const CapturedLog log;
      const TemporaryFolder temporary;
      ToyTask task;
      task.loss_factor = 0;
      task.to_step = zero_steps;
      CHECK(start(RunFolder(temporary.file("run")), task) == kExitSuccess);
      CHECK(log.says(note) == (zero_steps == 2));
      CHECK(log.says("not trained") == (zero_steps == 2));
    }
  }

  TEST_CASE("a gradient in the first step is enough") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    ToyTask task;
    task.loss_factor = 0;
    task.from_step = 1;  // the first step has a gradient
    CHECK(start(RunFolder(temporary.file("run")), task) == kExitSuccess);
    CHECK_FALSE(log.says("not trained"));
  }

  TEST_CASE("a step that is not finite can be skipped, and is counted") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    ToyTask task = spoilt("skip");
    CHECK(start(folder, task) == kExitSuccess);
    CHECK(log.says("step 9: the loss is nan: [affine] forward gave the first value that is not finite"));
    CHECK(log.says("; its update was skipped"));
    const auto bad = metrics(folder, "bad_step");
    REQUIRE(bad.size() == 1);
    CHECK(bad[0].at("step") == 9);
    CHECK(bad[0].at("update") == "skipped");
    const auto lines = metrics(folder, "train_loss");
    REQUIRE(lines.size() == 6);
    for (const Json& line : lines) {
      CHECK(line.at("train_loss").is_number());
      CHECK(line.value("bad_steps", 0) == (line.at("step") >= 9 ? 1 : 0));
    }
    for (const double weight : weights_in(folder)) CHECK(std::isfinite(weight));
    check_resumes([] { return spoilt("skip"); });
  }

  TEST_CASE("a run can go back to the last checkpoint, and leave the step out") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    ToyTask task = spoilt("go-back");
    CHECK(start(folder, task) == kExitSuccess);
    CHECK(log.says("; went back to step 5"));
    const auto bad = metrics(folder, "bad_step");
    REQUIRE(bad.size() == 1);
    CHECK(bad[0].at("step") == 9);
    CHECK(bad[0].at("update") == "left out");
    CHECK(metrics(folder, "train_loss").size() == 6);
    CHECK(folder.checkpoint_state().at("batches") == 12);
    // The step's update is all that is missing: the optimizer never saw it.
    const RunFolder other(temporary.file("other"));
    ToyTask infinite = spoilt("go-back", std::numeric_limits<double>::infinity());
    CHECK(start(other, infinite) == kExitSuccess);
    CHECK(weights_in(folder) == weights_in(other));
  }

  TEST_CASE("stopped after every step and resumed, a run that goes back is the uninterrupted one") {
    // Stopped after step 8 it has another checkpoint to go back to, which changes nothing.
    check_resumes([] { return spoilt("go-back"); });
  }

  TEST_CASE("weights that an update has ruined are left as they were at the checkpoint") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    struct TwiceRuined : ToyTask {
      int times = 0;
      Validation validate(Progress& progress) override {
        Validation result = ToyTask::validate(progress);
        if (++times == 2 || times == 3) result.loss = kNan;
        return result;
      }
    };
    TwiceRuined task;
    task.training.non_finite = "go-back";
    CHECK(start(folder, task) == kExitSuccess);
    CHECK(log.says("step 8: the validation loss is nan; went back to step 4"));
    CHECK(log.says("step 7: the validation loss is nan; went back to step 4"));
    const auto bad = metrics(folder, "bad_step");
    REQUIRE(bad.size() == 2);
    CHECK(bad[0].at("step") == 7);
    CHECK(bad[1].at("step") == 8);
  }

  TEST_CASE("weights that stay ruined without the steps since the checkpoint stop the run") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    ToyTask task;
    task.training.non_finite = "go-back";
    task.validations = {1, kNan};
    CHECK(message_of<Error>([&] {
            start(RunFolder(temporary.file("run")), task);
          }).find("step 4: the validation loss is nan; stopped. The checkpoint of step 4 in ") == 0);
  }

  TEST_CASE("a run that goes back to another program's checkpoint says so") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    struct Replaced : ToyTask {
      const RunFolder& folder;
      explicit Replaced(const RunFolder& where) : folder(where) {}
      Validation validate(Progress& progress) override {
        Validation result = ToyTask::validate(progress);
        result.loss = kNan;
        AdamW optimizer(model().parameters());
        const auto visit_state = [&](OptimizerVisitor& visitor) { optimizer.visit_state(visitor); };
        folder.save_checkpoint(model(), visit_state, Json{{"whiskers", 1}});
        return result;
      }
    } task(folder);
    task.training.non_finite = "go-back";
    CHECK(message_of<CheckpointError>([&] { start(folder, task); })
              .find(folder.path() + ": the checkpoint's state does not fit this program; was the run another "
                                    "program's, or another version's? (") == 0);
  }

  TEST_CASE("ten bad steps in a row are too many") {
    for (const char* policy : {"skip", "go-back"}) {
      CAPTURE(policy);
      const CapturedLog log;
      const TemporaryFolder temporary;
      const RunFolder folder(temporary.file("run"));
      ToyTask task = spoilt(policy);
      task.training.steps = 40;
      task.training.checkpoint_every = 40;
      task.training.validate_every = 40;
      task.to_step = 40;
      const std::string message = message_of<Error>([&] { start(folder, task); });
      CHECK(message.find("step 18: the loss is nan") == 0);
      CHECK(message.find("; stopped. The checkpoint of step 0 in ") != std::string::npos);
    }
  }

  TEST_CASE("what was bad is computed again from the same random state, which then goes on") {
    struct BadDraw : ToyTask {
      BadDraw() : ToyTask(spoilt("skip", 1)) {}
      std::uint64_t bad = ~std::uint64_t{0};  // where the draws of the ninth batch begin
      BatchLoss batch_loss() override {
        const std::uint64_t here = *toy.named_counters().at(0).second;
        BatchLoss batch = ToyTask::batch_loss();
        if (++times == 9) bad = here;
        if (here == bad) batch.loss = affine(batch.loss, kNan, 0);
        return batch;
      }
      int times = 0;
    };
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run")), other(temporary.file("other"));
    BadDraw task;
    CHECK(start(folder, task) == kExitSuccess);
    CHECK(task.bad < 1000);
    CHECK(task.times == 12 + 1);
    CHECK(log.says("step 9: the loss is nan: [affine] forward"));
    ToyTask known = spoilt("skip");
    CHECK(start(other, known) == kExitSuccess);
    CHECK(weights_in(folder) == weights_in(other));
  }

  TEST_CASE("a step of several batches is computed again up to the one that was bad") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    ToyTask task = spoilt("skip"), healthy = spoilt("skip", 1);
    task.training.accumulate = healthy.training.accumulate = 3;
    task.from_step = 6;  // the third step
    task.to_step = 9;
    CHECK(start(RunFolder(temporary.file("run")), task) == kExitSuccess);
    CHECK(start(RunFolder(temporary.file("healthy")), healthy) == kExitSuccess);
    CHECK(log.says("step 3: the loss is nan: [affine] forward"));
    CHECK(*task.toy.named_counters().at(0).second == *healthy.toy.named_counters().at(0).second);
  }

  TEST_CASE("a loss far above the last ones is noted, skipped, gone back from or stops the run") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder noted(temporary.file("noted")), skipped(temporary.file("skipped")),
        back(temporary.file("back")), stopped(temporary.file("stopped"));
    ToyTask noting = spiked("note"), skipping = spiked("skip"), going = spiked("go-back"),
            stopping = spiked("stop");
    CHECK(start(noted, noting) == kExitSuccess);
    CHECK(log.says("far above the last ones' mean of "));
    CHECK(log.says("; its update was made"));
    CHECK(start(skipped, skipping) == kExitSuccess);
    CHECK(start(back, going) == kExitSuccess);
    CHECK(log.says("; went back to step 60"));
    const auto update = [](const RunFolder& folder) {
      const auto bad = metrics(folder, "bad_step");
      REQUIRE(bad.size() == 1);
      CHECK(bad[0].at("step") == 70);
      return bad[0].at("update");
    };
    CHECK(update(noted) == "made");
    CHECK(update(skipped) == "skipped");
    CHECK(update(back) == "left out");
    CHECK(weights_in(skipped, "checkpoint.safetensors") == weights_in(back, "checkpoint.safetensors"));
    CHECK(weights_in(skipped, "checkpoint.safetensors") != weights_in(noted, "checkpoint.safetensors"));
    CHECK(message_of<Error>([&] { start(stopped, stopping); }).find("step 70: the loss is ") == 0);
    check_resumes([] { return spiked("go-back"); });
  }

  TEST_CASE("after a skipped step the optimizer and the average are as if it had not been") {
    const CapturedLog log;
    for (const char* kind : {"adamw", "muon"}) {
      for (const double average_decay : {0.0, 0.9}) {
        const auto weights = [&](const std::string& policy) {
          const TemporaryFolder temporary;
          const RunFolder folder(temporary.file("run"));
          ToyTask task;
          task.training.non_finite = policy;
          task.training.checkpoint_every = 5;
          task.training.average_decay = average_decay;
          task.training.optimizer.set_kind(kind);
          task.loss_factor = kNan;
          task.from_step = 8;
          task.to_step = 10;
          CHECK(start(folder, task) == kExitSuccess);
          return std::pair(weights_in(folder), weights_in(folder, "checkpoint.safetensors"));
        };
        CAPTURE(kind);
        CHECK(weights("skip") == weights("go-back"));  // which leaves the steps out altogether
      }
    }
  }

  TEST_CASE("stopped within a row of bad steps, a run ends as one that was not") {
    const CapturedLog log;
    for (const char* policy : {"skip", "go-back"}) {
      const TemporaryFolder temporary;
      const RunFolder whole(temporary.file("whole")), broken(temporary.file("broken"));
      const auto make_task = [&] {
        ToyTask task = spoilt(policy);
        task.training.steps = task.training.validate_every = task.training.checkpoint_every = 40;
        task.to_step = 40;
        return task;
      };
      const auto end_of = [](const std::function<void()>& run) {
        const std::string message = message_of<Error>(run);
        return message.substr(0, message.find("; stopped. "));
      };
      const std::string expected = end_of([&] {
        ToyTask task = make_task();
        start(whole, task);
      });
      CHECK(expected.find("step 18: the loss is nan") == 0);
      ToyTask first = make_task();
      start(broken, first, kOneStep);
      CHECK(end_of([&] {
              for (int part = 0; part < 40; ++part) {
                ToyTask task = make_task();
                resume(broken, task, kOneStep);
              }
            }) == expected);
    }
  }

  TEST_CASE("each loss counts once among the last ones, whatever is done about spikes") {
    const CapturedLog log;
    const auto watched = [](const std::string& policy, double factor) {
      const TemporaryFolder temporary;
      const RunFolder folder(temporary.file("run"));
      ToyTask task = spiked(policy);
      task.loss_factor = factor;
      task.from_step = 39;  // of the first 50 losses none is far above
      task.to_step = 40;
      CHECK(start(folder, task) == kExitSuccess);
      CHECK(metrics(folder, "bad_step").empty());
      return folder.checkpoint_state().at("guard").at("loss_watch");
    };
    for (const double factor : {1.0, 100.0}) {
      CHECK(watched("skip", factor).at("losses") == 90);
      CHECK(watched("skip", factor) == watched("note", factor));
    }
  }
}
