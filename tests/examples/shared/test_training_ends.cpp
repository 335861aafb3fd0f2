#include <tapeformer/autograd/words.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/tests/examples/captured_log.h>
#include <tapeformer/tests/examples/metrics_lines.h>
#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

using namespace tapeformer;

namespace {

struct Killed : std::runtime_error {
  Killed() : std::runtime_error("killed") {}
};

/// Is killed `kills` times during its final measurement.
class KilledTask : public ToyTask {
 public:
  int kills = 1;
  Json conclude(Progress& progress) override {
    if (kills-- > 0) throw Killed();
    return ToyTask::conclude(progress);
  }
};

ToyTask dropping_task() {
  ToyTask task(0.4);
  task.batch_sizes = {4, 3, 5};
  task.training.accumulate = 3;
  return task;
}

ToyTask of_steps(Index steps, const std::string& schedule) {
  ToyTask task(0.3);
  task.training.steps = steps;
  task.training.schedule = schedule;
  return task;
}

bool same_files(const RunFolder& a, const RunFolder& b) {
  const std::vector<std::string> names = {"weights.safetensors", "checkpoint.safetensors"};
  return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return read_file(a.file(name)) == read_file(b.file(name));
  });
}

}  // namespace

TEST_SUITE("examples/training_ends") {
  TEST_CASE("a training that is killed as it measures at its end measures on resuming") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder whole(temporary.file("whole")), killed(temporary.file("killed"));
    ToyTask reference;
    CHECK(start(whole, reference) == kExitSuccess);
    KilledTask task;
    task.kills = 2;
    CHECK_THROWS_AS(start(killed, task), Killed);
    CHECK(killed.checkpoint_state().at("finished") == true);
    CHECK(metrics(killed, "true_loss").empty());
    CHECK_FALSE(killed.has_ending(12));
    CHECK_THROWS_AS(resume(killed, task), Killed);
    CHECK(resume(killed, task) == kExitSuccess);
    CHECK_FALSE(log.says("finished"));
    CHECK(metrics(killed, "step") == metrics(whole, "step"));
    CHECK(metrics(killed, "true_loss") == metrics(whole, "true_loss"));
    CHECK(metrics(killed, "true_loss").size() == 1);
    CHECK(metrics(killed, "seconds").size() == 1);
    CHECK(same_files(whole, killed));

    CHECK(resume(killed, task) == kExitSuccess);
    CHECK(log.says("this training is finished"));
    CHECK(metrics(killed, "true_loss").size() == 1);
    // The last line was being written.
    const std::string lines = read_file(killed.file("metrics.jsonl"));
    write_bytes(killed.file("metrics.jsonl"), lines.substr(0, lines.size() - 9));
    CHECK(resume(killed, task) == kExitSuccess);
    CHECK(metrics(killed, "step") == metrics(whole, "step"));
  }

  TEST_CASE(
      "stopped before any batch of a step and resumed, a run is the uninterrupted one to the last bit") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder whole(temporary.file("whole"));
    ToyTask reference = dropping_task();
    CHECK(start(whole, reference) == kExitSuccess);
    // Asked before every batch, behind every step, and before a validation.
    for (const Index batches : {0, 1, 2, 3, 5, 6}) {
      CAPTURE(batches);
      const RunFolder broken(temporary.file("broken" + std::to_string(batches)));
      TrainingControl control;
      Index asked = 0;
      control.stops = [&] { return asked++ >= batches; };
      ToyTask task = dropping_task();
      CHECK(start(broken, task, control) == kExitInterrupted);
      const Index step = broken.checkpoint_state().at("step").get<Index>();
      CHECK(step == (batches < 3 ? 0 : 1));
      CHECK(log.says("interrupted at step " + std::to_string(step) + "; saved. Go on with: train_toy"));
      if (step == 0) CHECK(broken.checkpoint_state().at("batches") == 0);
      for (int again = 0; again < 2; ++again) {  // stopped at once, twice
        asked = batches;
        ToyTask same = dropping_task();
        CHECK(resume(broken, same, control) == kExitInterrupted);
      }
      ToyTask rest = dropping_task();
      CHECK(resume(broken, rest) == kExitSuccess);
      CHECK(same_files(whole, broken));
      CHECK(metrics(whole, "step") == metrics(broken, "step"));
    }
  }

  TEST_CASE("a finished training resumed to more steps equals one started with that number of steps") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    for (const std::string schedule : {"constant", "inverse_square_root", "cosine"}) {
      CAPTURE(schedule);
      const RunFolder whole(temporary.file("whole-" + schedule)),
          longer(temporary.file("longer-" + schedule)), other(temporary.file("other-" + schedule));
      ToyTask reference = of_steps(20, schedule), first = of_steps(12, schedule),
              second = of_steps(20, schedule), last = of_steps(20, schedule);
      CHECK(start(whole, reference) == kExitSuccess);
      CHECK(start(longer, first) == kExitSuccess);
      TrainingControl at_once;
      at_once.stops = [] { return true; };
      CHECK(resume(longer, second, at_once, 12) == kExitInterrupted);
      CHECK(longer.checkpoint_state().at("finished") == false);
      CHECK(longer.checkpoint_state().at("step") == 12);
      CHECK(resume(longer, last) == kExitSuccess);
      CHECK(longer.checkpoint_state().at("step") == 20);
      CHECK(metrics(longer, "true_loss").size() == 2);
      const Schedule before(first.training.schedule_config()), now(last.training.schedule_config());
      CHECK(log.says("goes on to step 20, with the " + schedule +
                     " schedule of 20 steps: the learning rate is " +
                     format("%.2e at step 13, and was %.2e at step 12", now(12), before(11))));
      for (const Json& line : metrics(longer, "train_loss")) {
        const auto step = line.at("step").get<Index>();
        CHECK(line.at("learning_rate") == (step <= 12 ? before : now)(step - 1));
      }
      if (schedule != "cosine") CHECK(same_files(whole, longer));  // the number of steps is nothing to them
    }
  }

  TEST_CASE("a training that ended for want of patience goes on, and is patient again") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    ToyTask task;
    task.training.validate_every = 2;
    task.training.patience = 2;
    task.validations = {5, 6, 7, 8, 9};
    CHECK(start(folder, task) == kExitSuccess);
    CHECK(folder.checkpoint_state().at("step") == 6);
    CHECK(resume(folder, task, {}, 12) == kExitSuccess);
    CHECK(log.says("goes on to step 12"));
    CHECK(log.says("trained 4 more steps in "));
    CHECK(folder.checkpoint_state().at("step") == 10);
  }

  TEST_CASE("the number of steps is changed in the checkpoint's options, and must be above those done") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    class OptionTask : public ToyTask {
     public:
      explicit OptionTask(const Json* checkpoint) {
        if (checkpoint != nullptr) training.steps = checkpoint->at("options").at("steps").get<Index>();
      }
      void save_state(Json& state) const override {
        ToyTask::save_state(state);
        state["options"] = {{"steps", training.steps}};
      }
    };
    const MakeTask make_task = [&](const Json* checkpoint, Progress&) {
      return std::make_unique<OptionTask>(checkpoint);
    };
    CHECK(start_training(folder, {}, make_task) == kExitSuccess);
    TrainingControl control;
    for (const Index steps : {-1, 5, 12}) {
      control.steps = steps;
      CHECK(message_of<Error>([&] { resume_training(folder, control, make_task); }) ==
            "--steps must be above 12, the step that the run has come to; got " + std::to_string(steps));
    }
    control.steps = 15;
    CHECK(resume_training(folder, control, make_task) == kExitSuccess);
    CHECK(folder.checkpoint_state().at("step") == 15);
    CHECK(resume_training(folder, {}, make_task) == kExitSuccess);
    CHECK(log.says("this training is finished; the best weights are in " + folder.path() +
                   "/weights.safetensors; it goes on with a larger number of --steps"));
  }

  TEST_CASE("the checkpoints before the last are kept if that is asked for, and a run goes on from them") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder whole(temporary.file("whole")), folder(temporary.file("run"));
    const auto task = [](Index earlier) {
      ToyTask made(0.3);
      made.training.checkpoint_every = 2;
      made.training.earlier_checkpoints = earlier;
      return made;
    };
    const auto is_there = [&](Index step) {
      return std::filesystem::exists(folder.file("checkpoint-" + std::to_string(step) + ".safetensors"));
    };
    ToyTask reference = task(0), kept = task(2), rest = task(2);
    CHECK(start(whole, reference) == kExitSuccess);
    CHECK(start(folder, kept) == kExitSuccess);
    CHECK(same_files(whole, folder));
    for (Index step = 0; step <= 12; ++step) CHECK(is_there(step) == (step == 8 || step == 10));
    CHECK_FALSE(std::filesystem::exists(whole.file("checkpoint-10.safetensors")));
    std::filesystem::rename(folder.file("checkpoint-8.safetensors"), folder.file("checkpoint.safetensors"));
    CHECK(resume(folder, rest) == kExitSuccess);
    CHECK(log.says("resumed at step 8"));
    CHECK(same_files(whole, folder));
    CHECK(metrics(whole, "validation_loss") == metrics(folder, "validation_loss"));
  }

  TEST_CASE("any byte of a checkpoint that changed is noticed") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    ToyTask task;
    CHECK(start(folder, task) == kExitSuccess);
    const std::string path = folder.file("checkpoint.safetensors"), bytes = read_file(path);
    std::size_t noticed = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ 1 << i % 8);
      write_bytes(path, damaged);
      try {
        folder.checkpoint_state();
      } catch (const CheckpointError&) {
        ++noticed;
      }
    }
    CHECK(noticed == bytes.size());
    write_bytes(path, bytes);
    CHECK(folder.checkpoint_state().at("step") == 12);
  }

  TEST_CASE("a training that cannot save ends, and says how it goes on") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder whole(temporary.file("whole")), folder(temporary.file("run"));
    ToyTask reference;
    CHECK(start(whole, reference) == kExitSuccess);
    class HinderedTask : public ToyTask {
     public:
      std::string obstacle;
      void next_batch() override {
        if (!obstacle.empty()) std::filesystem::create_directory(obstacle);
        obstacle.clear();
        ToyTask::next_batch();
      }
    };
    HinderedTask task;
    task.obstacle = folder.file("checkpoint.safetensors.partial");
    CHECK(message_of<CheckpointError>([&] { start(folder, task); }) ==
          folder.file("checkpoint.safetensors") +
              ": cannot be written: Is a directory; once that is mended, this goes on from the last "
              "checkpoint: "
              "train_toy train --run " +
              folder.path() + " --resume");
    std::filesystem::remove(folder.file("checkpoint.safetensors.partial"));
    ToyTask rest;
    CHECK(resume(folder, rest) == kExitSuccess);
    CHECK(same_files(whole, folder));
  }

  TEST_CASE("a terminal shows which batch of which step is computed, and keeps the lines of the log") {
    const TemporaryFolder temporary;
    class ShowingTask : public ToyTask {
     public:
      double trial_loss(Progress& progress) override {
        progress.show("validating 1/1");
        return ToyTask::trial_loss(progress);
      }
    };
    const auto shown = [&](const char* name, Index accumulate, bool terminal) {
      const CapturedLog log;
      ShowingTask task;
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

  TEST_CASE("one of a thing is not several") {
    CHECK(number_of(1, "thread") == "1 thread");
    CHECK(number_of(2, "thread") == "2 threads");
    CHECK(number_of(0, "batch", "batches") == "0 batches");
    CHECK(number_of(1, "batch", "batches") == "1 batch");
  }
}
