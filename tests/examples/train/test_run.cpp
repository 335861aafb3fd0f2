#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/optim/optim_case.h>

#include <omp.h>

#include <algorithm>

using namespace tapeformer;

TEST_CASE_FIXTURE(
    RunCase, "a step is forward, backward, clipping and the schedule's update, and the log tells of it") {
  ToyTask task;
  task.training.clip = 0.3;
  task.training.optimizer.options = {{"weight_decay", 0.2}, {"beta1", 0.7}, {"beta2", 0.98}};
  task.training.minimum_learning_rate = 0.01;
  const ToyTask data;
  CHECK(start(folder, task) == kExitSuccess);

  ToyModel model;
  AdamWConfig adamw;
  adamw.weight_decay = 0.2, adamw.beta1 = 0.7, adamw.beta2 = 0.98;
  AdamW optimizer(model.parameters(), adamw);
  const Schedule schedule(task.training.schedule_config());
  std::vector<double> losses, norms;
  for (Index step = 0; step < 12; ++step) {
    model.clear_gradients();
    Tape tape;
    const Tensor loss = data.loss_of(model, 4 * step, 4);
    tape.backward(loss);
    norms.push_back(clip_gradient_norm(model.parameters(), 0.3));
    optimizer.step(schedule(step));
    losses.push_back(loss.item());
  }
  CHECK(*std::max_element(norms.begin(), norms.end()) > 0.3);
  const std::vector<Json> lines = metrics(folder, "train_loss");
  REQUIRE(lines.size() == 6);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto step = static_cast<Index>(2 * i + 2);
    CHECK(lines[i] == Json({{"step", step},
                            {"train_loss", (losses[2 * i] + losses[2 * i + 1]) / 2},
                            {"learning_rate", schedule(step - 1)},
                            {"gradient_norm", norms[2 * i + 1]},
                            {"tokens", 4 * step},
                            {"epoch", 4 * step / kToyExamples}}));
  }
  CHECK(log.says("step 12/12  loss "));
  CHECK(log.says("tokens/s"));
  CHECK(log.says("trained 12 steps in "));
  CHECK(task.concluded.size() == 1);
  CHECK(task.shown == 0);
  CHECK(folder.config() == Json::object());
  const Tensor trained =
      SafetensorsFile::open(folder.file("checkpoint.safetensors")).tensor("model.linear.weight");
  CHECK(trained.to_vector<double>() == weights_of(model).front().second.to_vector<double>());
}

TEST_CASE_FIXTURE(
    Logged, "batches whose gradients are accumulated weigh by their tokens: the same as one large batch") {
  const RunFolder parts(temporary.file("parts")), whole(temporary.file("whole"));
  ToyTask in_parts, at_once;
  in_parts.batch_sizes = {1, 5, 2};
  in_parts.training.accumulate = 3;
  at_once.batch_sizes = {8};
  CHECK(start(parts, in_parts) == kExitSuccess);
  CHECK(start(whole, at_once) == kExitSuccess);
  const auto a = weights_in(parts), b = weights_in(whole);
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK_BELOW(std::fabs(a[i] - b[i]), 1e-12);
  const auto of_parts = metrics(parts, "train_loss"), of_whole = metrics(whole, "train_loss");
  REQUIRE(of_parts.size() == of_whole.size());
  for (std::size_t i = 0; i < of_parts.size(); ++i)
    CHECK_BELOW(
        deviation(of_parts[i].at("train_loss").get<double>(), of_whole[i].at("train_loss").get<double>()),
        1e-12);
}

TEST_CASE("stopped after every step, a run of any optimizer is the uninterrupted one to the last bit") {
  for (const OptimizerConfig& config : every_optimizer()) {
    CAPTURE(config.kind);
    check_resumes([&] {
      ToyTask task(0.4);
      task.batch_sizes = {4, 3};
      task.training.accumulate = 2;
      task.training.optimizer = config;
      task.training.log_every = 5;
      task.toy.eval();  // a run trains all the same
      return task;
    });
  }
}

TEST_CASE("stopped before any batch of a step and resumed, a run is the uninterrupted one") {
  const auto dropping_task = [] {
    ToyTask task(0.4);
    task.batch_sizes = {4, 3, 5};
    task.training.accumulate = 3;
    return task;
  };
  const CapturedLog log;
  const TemporaryFolder temporary;
  const RunFolder whole(temporary.file("whole"));
  ToyTask reference = dropping_task();
  CHECK(start(whole, reference) == kExitSuccess);
  // Asked before every batch, after every step, and before a validation.
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
    CHECK(log.says("interrupted at step " + std::to_string(step) + "; saved. Continue with: train_toy"));
    for (int again = 0; again < 2; ++again) {  // stopped at once, twice
      asked = batches;
      ToyTask same = dropping_task();
      CHECK(resume(broken, same, control) == kExitInterrupted);
    }
    ToyTask rest = dropping_task();
    CHECK(resume(broken, rest) == kExitSuccess);
    check_same_files(whole, broken);
  }
}

TEST_CASE("each batch is made once, the next one's during the current step, and none after the last") {
  struct OrderedTask : ToyTask {
    std::string order;
    Batch batch(Index number, BatchShare share) override {
      order += "b" + std::to_string(number);
      return ToyTask::batch(number, share);
    }
    Tensor loss(const Batch& batch) override {
      order += "l";
      return ToyTask::loss(batch);
    }
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
        "b0lb1lb2"
        "lb3lb4v"
        "lb5lb6"
        "lb7lv");
}

TEST_CASE_FIXTURE(RunCase, "start and resume make the task, and refuse unsuitable folders") {
  Index made = 0;
  const MakeTask make_task = [&](const Json* checkpoint, Progress&) {
    CHECK((checkpoint == nullptr) == (made == 0));
    ++made;
    return std::make_unique<ToyTask>();
  };
  TrainingControl one_step;
  one_step.max_minutes = kOneStep;
  one_step.compute.threads = 3;
  const int threads = omp_get_max_threads();
  CHECK(start_training(folder, one_step, make_task) == kExitSuccess);
  CHECK_THROWS_WITH_AS(start_training(folder, {}, make_task),
                       doctest::Contains("holds a run already; try --resume"), DataError);
  CHECK(made == 1);
  omp_set_num_threads(2);
  CHECK(resume_training(folder, {}, make_task) == kExitSuccess);
  CHECK(omp_get_max_threads() == 3);
  CHECK_FALSE(log.says("threads; with another number"));
  omp_set_num_threads(threads);
  CHECK(made == 2);
  CHECK(log.says("resumed at step 1"));
  const MakeTask misfit = [](const Json* checkpoint, Progress&) -> std::unique_ptr<TrainingTask> {
    checkpoint->at("whiskers");
    return nullptr;
  };
  CHECK(has(message_of<CheckpointError>([&] { resume_training(folder, {}, misfit); }),
            "the checkpoint's state does not fit this program"));
  CHECK(message_of<Error>([&] {
          resume_training(folder, {}, [](const Json*, Progress&) {
            auto task = std::make_unique<ToyTask>();
            task->training.non_finite = "go-back";  // which was retired
            return task;
          });
        }) == "--non-finite must be stop or skip; got go-back");
  CHECK_THROWS_WITH_AS(resume_training(RunFolder(temporary.file("none")), {}, make_task),
                       doctest::Contains("there is no checkpoint to resume from"), CheckpointError);
}
