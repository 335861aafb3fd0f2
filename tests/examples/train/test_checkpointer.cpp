#include <tapeformer/examples/shared/program.h>
#include <tapeformer/tests/examples/toy_task.h>

#include <limits>
#include <stdexcept>

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

ToyTask of_steps(Index steps, const std::string& schedule) {
  ToyTask task(0.3);
  task.training.steps = steps;
  task.training.schedule = schedule;
  return task;
}

}  // namespace

TEST_CASE_FIXTURE(Logged, "a run that is killed during its final evaluation evaluates on resuming") {
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
  CHECK(metrics(killed, "true_loss").size() == 1);
  CHECK(metrics(killed, "seconds").size() == 1);
  check_same_files(whole, killed);

  CHECK(resume(killed, task) == kExitSuccess);
  CHECK(log.says("this run is finished"));
  CHECK(metrics(killed, "true_loss").size() == 1);
  // The last line was being written.
  const std::string lines = read_file(killed.file("metrics.jsonl"));
  write_bytes(killed.file("metrics.jsonl"), lines.substr(0, lines.size() - 9));
  CHECK(resume(killed, task) == kExitSuccess);
  CHECK(metrics(killed, "step") == metrics(whole, "step"));
}

TEST_CASE_FIXTURE(
    Logged, "a finished run that is resumed to more steps equals one started with that number of steps") {
  for (const std::string schedule : {"constant", "inverse_square_root", "cosine"}) {
    CAPTURE(schedule);
    const RunFolder whole(temporary.file("whole-" + schedule)), longer(temporary.file("longer-" + schedule));
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
    CHECK(log.says("continues to step 20, with the " + schedule +
                   " schedule of 20 steps: the learning rate is " +
                   format("{:.2e} at step 13, and was {:.2e} at step 12", now(12), before(11))));
    for (const Json& line : metrics(longer, "train_loss")) {
      const auto step = line.at("step").get<Index>();
      CHECK(line.at("learning_rate") == (step <= 12 ? before : now)(step - 1));
    }
    // The other schedules do not depend on the number of steps.
    if (schedule != "cosine")
      for (const char* name : {"weights.safetensors", "checkpoint.safetensors"})
        CHECK((read_file(whole.file(name)) == read_file(longer.file(name))));
  }
}

TEST_CASE_FIXTURE(RunCase, "a run that ran out of patience is resumed with fresh patience") {
  ToyTask task;
  task.training.validate_every = 2;
  task.training.patience = 2;
  task.validations = {5, 6, 7, 8, 9};
  CHECK(start(folder, task) == kExitSuccess);
  CHECK(folder.checkpoint_state().at("step") == 6);
  CHECK(resume(folder, task, {}, 12) == kExitSuccess);
  CHECK(log.says("continues to step 12"));
  CHECK(log.says("trained 4 more steps in "));
  CHECK(folder.checkpoint_state().at("step") == 10);
}

TEST_CASE_FIXTURE(Logged, "earlier checkpoints are kept on request, and a run can be resumed from them") {
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
  check_same_files(whole, folder);
  for (Index step = 0; step <= 12; ++step) CHECK(is_there(step) == (step == 8 || step == 10));
  CHECK_FALSE(std::filesystem::exists(whole.file("checkpoint-10.safetensors")));
  std::filesystem::rename(folder.file("checkpoint-8.safetensors"), folder.file("checkpoint.safetensors"));
  CHECK(resume(folder, rest) == kExitSuccess);
  CHECK(log.says("resumed at step 8"));
  check_same_files(whole, folder);
}

TEST_CASE_FIXTURE(Logged, "a run that cannot save ends, and says how to resume it") {
  const RunFolder whole(temporary.file("whole")), folder(temporary.file("a run"));
  ToyTask reference;
  CHECK(start(whole, reference) == kExitSuccess);
  class HinderedTask : public ToyTask {
   public:
    std::string obstacle;
    Batch batch(Index number, BatchShare share) override {
      if (!obstacle.empty()) std::filesystem::create_directory(obstacle);
      obstacle.clear();
      return ToyTask::batch(number, share);
    }
  };
  HinderedTask task;
  task.obstacle = folder.file("checkpoint.safetensors.partial");
  CHECK(message_of<CheckpointError>([&] { start(folder, task); }) ==
        folder.file("checkpoint.safetensors") +
            ": cannot be written: Is a directory; once that is fixed, this continues from the last "
            "checkpoint: train_toy train --run '" +
            folder.path() + "' --resume");
  std::filesystem::remove(folder.file("checkpoint.safetensors.partial"));
  ToyTask rest;
  CHECK(resume(folder, rest) == kExitSuccess);
  check_same_files(whole, folder);
}

TEST_CASE_FIXTURE(
    RunCase, "a checkpoint is written every few steps, and later metrics are written again on resuming") {
  const RunFolder whole(temporary.file("whole"));
  ToyTask task, reference, healed;
  task.training.checkpoint_every = reference.training.checkpoint_every = healed.training.checkpoint_every = 5;
  task.from_step = 8;  // the ninth step's loss is not finite: steps 6 to 8 are lost
  task.loss_factor = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH_AS(start(folder, task), doctest::Contains("The checkpoint of step 5 in "), BadStep);
  CHECK(metrics(folder, "train_loss").size() == 4);
  CHECK(folder.checkpoint_state().at("step") == 5);
  CHECK_THROWS_WITH_AS(resume(folder, task), doctest::Contains("The checkpoint of step 5 in "), BadStep);
  CHECK(resume(folder, healed) == kExitSuccess);
  CHECK(log.says("resumed at step 5"));
  CHECK(start(whole, reference) == kExitSuccess);
  check_same_files(folder, whole);
}

TEST_CASE_FIXTURE(RunCase, "the folder records where the run computed, and resuming elsewhere is reported") {
  ToyTask task;
  CHECK(start(folder, task, kOneStep) == kExitSuccess);
  Json state = folder.checkpoint_state();
  CHECK(state.at("device") == default_device().text());
  CHECK(state.at("precision") == "f32");
  const auto resume_at = [&] {
    Progress progress;
    Session session(folder, {}, task, progress);
    TrainingRun(session).checkpointer.resume(state);
  };
  resume_at();
  CHECK_FALSE(log.says("up to here"));
  for (const char* older : {"device", "precision"}) state.erase(older);
  state["precision"] = "tf32";
  resume_at();
  CHECK(log.says("note: the run was on cpu in tf32 up to here"));
}
