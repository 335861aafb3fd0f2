#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/tests/examples/captured_log.h>
#include <tapeformer/tests/examples/metrics_lines.h>
#include <tapeformer/tests/examples/toy_task.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

#include <doctest/doctest.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>

using namespace tapeformer;

namespace {

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

}  // namespace

TEST_SUITE("examples/shared/training_run") {
  TEST_CASE("a step is forward, backward, clipping and the schedule's update, and the log tells of it") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
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
    std::vector<double> losses;
    std::vector<double> norms;
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
    const Tensor expected = weights_of(model).front().second;
    for (Index i = 0; i < expected.elements(); ++i) CHECK(trained.at(i) == expected.at(i));
  }

  TEST_CASE("batches whose gradients are accumulated weigh by their tokens: the same as one large batch") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder parts(temporary.file("parts")), whole(temporary.file("whole"));
    ToyTask in_parts, at_once;
    in_parts.batch_sizes = {1, 5, 2};
    in_parts.training.accumulate = 3;
    at_once.batch_sizes = {8};
    CHECK(start(parts, in_parts) == kExitSuccess);
    CHECK(start(whole, at_once) == kExitSuccess);
    CHECK_BELOW(largest_difference(weights_in(parts), weights_in(whole)), 1e-12);
    const auto a = metrics(parts, "train_loss"), b = metrics(whole, "train_loss");
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      CHECK_BELOW(deviation(a[i].at("train_loss").get<double>(), b[i].at("train_loss").get<double>()), 1e-12);
    }
  }

  TEST_CASE(
      "stopped after every step and resumed, a run of any optimizer is the uninterrupted one to the last "
      "bit") {
    for (const OptimizerKind& kind : optimizer_kinds()) {
      CAPTURE(kind.name);
      const CapturedLog log;
      const TemporaryFolder temporary;
      const RunFolder whole(temporary.file("whole")), broken(temporary.file("broken"));
      ToyTask at_once(0.4);
      at_once.batch_sizes = {4, 3};
      at_once.training.accumulate = 2;
      at_once.training.optimizer = {kind.name, {}};
      if (at_once.training.optimizer.option("momentum")) at_once.training.optimizer.options["momentum"] = 0.9;
      at_once.training.log_every = 5;
      at_once.toy.eval();  // a run trains all the same
      CHECK(start(whole, at_once) == kExitSuccess);
      for (Index step = 0; step < 12; ++step) {
        ToyTask task(0.4);
        task.batch_sizes = at_once.batch_sizes;
        task.training = at_once.training;
        CHECK((step == 0 ? start(broken, task, kOneStep) : resume(broken, task, kOneStep)) == kExitSuccess);
        CHECK(task.concluded.size() == (step == 11 ? 1 : 0));
      }
      CHECK(
          log.says("; weights in " + broken.file("weights.safetensors")));  // before the first validation too
      CHECK(log.says("the time limit is reached at step 4; saved. Go on with: train_toy train --run " +
                     broken.path() + " --resume\n"));
      for (const char* name : {"weights.safetensors", "checkpoint.safetensors"}) {
        CHECK((read_file(whole.file(name)) == read_file(broken.file(name))));  // binary: not to be shown
      }
      CHECK(metrics(whole, "step") == metrics(broken, "step"));

      ToyTask again(0.4);
      again.training = at_once.training;
      CHECK(resume(broken, again) == kExitSuccess);
      CHECK(log.says("this training is finished; the best weights are in " + broken.path()));
      CHECK(again.concluded.empty());
    }
  }

  TEST_CASE("a checkpoint is written every few steps, and later metrics are written again on resuming") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run")), whole(temporary.file("whole"));
    ToyTask task, reference;
    task.training.checkpoint_every = 5;
    task.from_step = 8;  // the ninth step's loss is not finite: steps 6 to 8 are lost
    task.loss_factor = std::numeric_limits<double>::infinity();
    CHECK(message_of<Error>([&] { start(folder, task); }) ==
          "step 9: the loss is inf: [affine] forward gave the first value that is not finite: inf at element "
          "0 of "
          "f64[]; stopped. The checkpoint of step 5 in " +
              folder.path() + " is unharmed; try a lower --learning-rate or a longer --warmup");
    CHECK(metrics(folder, "train_loss").size() == 4);
    CHECK(folder.checkpoint_state().at("step") == 5);
    CHECK(message_of<Error>([&] { resume(folder, task); }).find("The checkpoint of step 5 in") !=
          std::string::npos);
    ToyTask healed;
    healed.training.checkpoint_every = 5;
    CHECK(resume(folder, healed) == kExitSuccess);
    CHECK(log.says("resumed at step 5"));
    CHECK(start(whole, reference) == kExitSuccess);
    CHECK(metrics(folder, "step") == metrics(whole, "step"));
    CHECK(weights_in(folder) == weights_in(whole));
  }

  TEST_CASE("what is not finite stops the training before it can be saved") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::string advice = "; try a lower --learning-rate or a longer --warmup";
    const auto refusal = [&](const char* name, const std::function<void(ToyTask&)>& spoil) {
      const RunFolder folder(temporary.file(name));
      ToyTask task;
      spoil(task);
      return message_of<Error>([&] { start(folder, task); });
    };
    const auto kept = [&](const char* name) {
      return "The checkpoint of step 0 in " + temporary.file(name) + " is unharmed" + advice;
    };
    CHECK(
        refusal("loss", [&](ToyTask& task) { task.loss_factor = nan; }) ==
        "step 1: the loss is nan: [affine] forward gave the first value that is not finite: nan at element 0 "
        "of f64[]; stopped. " +
            kept("loss"));
    CHECK(refusal("norm", [&](ToyTask& task) { task.loss_factor = 1e300; }) ==
          "step 1: the gradient's norm is inf; stopped. " + kept("norm"));
    CHECK(refusal("validation", [&](ToyTask& task) { task.validations = {nan}; }) ==
          "step 4: the validation loss is nan; stopped. " + kept("validation"));
    CHECK(refusal("trial", [&](ToyTask& task) { task.trial = nan; }) ==
          "step 0: the loss after the update is nan; stopped. Nothing was saved" + advice);
    CHECK_FALSE(RunFolder(temporary.file("trial")).has_checkpoint());
    CHECK_FALSE(std::filesystem::exists(temporary.file("validation/weights.safetensors")));
  }

  TEST_CASE("the best weights are kept, and patience ends a training that gets no better") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run")), until_best(temporary.file("best")),
        broken(temporary.file("broken"));
    const auto configured = [] {
      ToyTask task;
      task.training.validate_every = 2;
      task.training.samples = 2;
      task.training.patience = 2;
      task.validations = {5, 6, 4, 4, 4.5, 3};
      return task;
    };
    ToyTask task = configured();
    CHECK(start(folder, task) == kExitSuccess);
    CHECK(log.says("no better validation for 2 times: stopped early"));
    CHECK(log.says(
        "step 6: validation loss 4.0000, perplexity 54.598, as a toy does it, the best so far, after"));
    CHECK(log.says("step 8: validation loss 4.0000, perplexity 54.598, as a toy does it, after"));
    CHECK(log.says("trained 10 steps in "));
    CHECK(log.says("best validation loss 4.0000; weights in " + folder.file("weights.safetensors")));
    CHECK(task.shown == 5);
    const auto lines = metrics(folder, "validation_loss");
    REQUIRE(lines.size() == 5);
    CHECK(lines[2] == Json({{"step", 6},
                            {"validation_loss", 4.0},
                            {"perplexity", std::exp(4.0)},
                            {"times", 3},
                            {"best", true},
                            {"tokens", 24},
                            {"samples", {"a toy's </script> sample"}}}));
    CHECK(lines[3].at("best") == false);
    CHECK(folder.checkpoint_state().at("finished") == true);

    ToyTask best;  // which stops where the other one was best
    best.training = task.training;
    best.training.samples = 0;
    CHECK(start(until_best, best, kOneStep) == kExitSuccess);
    for (Index step = 1; step < 6; ++step) resume(until_best, best, kOneStep);
    CHECK(weights_in(folder) == weights_in(until_best, "checkpoint.safetensors"));
    REQUIRE(task.concluded.size() == 1);
    CHECK(task.concluded[0] == best.true_loss());
    CHECK(metrics(folder, "true_loss") ==
          std::vector<Json>{{{"step", 10}, {"true_loss", task.concluded[0]}}});

    ToyTask first = configured();
    start(broken, first, kOneStep);
    for (Index step = 1; step < 10; ++step) {
      ToyTask next = configured();
      resume(broken, next, kOneStep);
    }
    CHECK(metrics(broken, "step") == metrics(folder, "step"));
    CHECK(weights_in(broken) == weights_in(folder));
  }

  TEST_CASE("the weights of the last validations are kept where that is asked for") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run")), none(temporary.file("none"));
    ToyTask task, plain;
    task.training.validate_every = plain.training.validate_every = 1;
    task.training.keep_checkpoints = 2;
    task.training.minimum_learning_rate = plain.training.minimum_learning_rate = 0.01;
    task.validations = plain.validations = {12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1};
    CHECK(start(folder, task, kOneStep) == kExitSuccess);
    write_bytes(folder.file("weights-5-mine.safetensors"), "somebody's");
    write_bytes(folder.file("weights-99.safetensors"), "of a run that was killed");
    for (Index step = 1; step < 12; ++step) {
      resume(folder, task, kOneStep);
      const auto is_there = [&](Index at) {
        return std::filesystem::exists(folder.file("weights-" + std::to_string(at) + ".safetensors"));
      };
      CHECK(is_there(step));
      CHECK(is_there(step + 1));
      CHECK_FALSE(is_there(step - 1));
    }
    CHECK(std::filesystem::exists(folder.file("weights-5-mine.safetensors")));
    CHECK(std::filesystem::exists(folder.file("weights-99.safetensors")));
    CHECK(weights_in(folder, "weights-12.safetensors") == weights_in(folder));
    CHECK(weights_in(folder, "weights-11.safetensors") != weights_in(folder));
    CHECK(start(none, plain) == kExitSuccess);
    CHECK_FALSE(std::filesystem::exists(none.file("weights-12.safetensors")));
    CHECK(weights_in(none) == weights_in(folder));
  }

  TEST_CASE("at the end, and wherever a run stops, it tells where its time went") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
    ToyTask task;
    task.training.accumulate = 2;
    task.training.samples = 1;
    CHECK(start(folder, task, kOneStep) == kExitSuccess);
    CHECK(log.says("\ntime: of 0 s: steps "));
    Json seconds = metrics(folder, "seconds").back();
    CHECK(seconds.at("step") == 1);
    CHECK(seconds.at("seconds").at("samples") == 0.0);

    // Every phase, slow enough to be seen.
    class SlowTask : public ToyTask {
     public:
      void next_batch() override {
        slow([&] { ToyTask::next_batch(); }, 2);
      }
      BatchLoss batch_loss() override {
        slow([] {}, 4);
        return ToyTask::batch_loss();
      }
      Validation validate(Progress& progress) override {
        slow([] {}, 60);
        return ToyTask::validate(progress);
      }
      double trial_loss(Progress& progress) override {
        slow([] {}, 30);
        return ToyTask::trial_loss(progress);
      }
      std::vector<std::string> samples(bool graphs) override {
        slow([] {}, 40);
        return ToyTask::samples(graphs);
      }
      Json conclude(Progress& progress) override {
        slow([] {}, 50);
        return ToyTask::conclude(progress);
      }

     private:
      static void slow(const std::function<void()>& work, int milliseconds) {
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
        work();
      }
    };
    const RunFolder slowly(temporary.file("slowly"));
    SlowTask slow;
    slow.training = task.training;
    CHECK(start(slowly, slow) == kExitSuccess);
    const std::vector<Json> told = metrics(slowly, "seconds");
    REQUIRE(told.size() == 1);
    CHECK(told[0].at("step") == 12);
    const auto at_least = [&](const char* phase, double least) {
      CAPTURE(phase);
      CHECK(told[0].at("seconds").at(phase).get<double>() >= least);
    };
    at_least("batches", 24 * 0.002);
    at_least("forward", 24 * 0.004);
    at_least("validation", 3 * 0.06 + 0.05);
    at_least("checkpoints", 4 * 0.03);
    at_least("samples", 3 * 0.04);
  }

  TEST_CASE("start and resume make the task, and refuse folders that do not fit") {
    const CapturedLog log;
    const TemporaryFolder temporary;
    const RunFolder folder(temporary.file("run"));
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
    CHECK(message_of<DataError>([&] {
            start_training(folder, {}, make_task);
          }).find("holds a training already; try --resume") != std::string::npos);
    CHECK(made == 1);
    omp_set_num_threads(2);
    CHECK(resume_training(folder, {}, make_task) == kExitSuccess);
    CHECK(omp_get_max_threads() == 3);
    CHECK_FALSE(log.says("threads; with another number"));
    omp_set_num_threads(threads);
    CHECK(made == 2);
    CHECK(log.says("resumed at step 1"));
    CHECK(message_of<CheckpointError>([&] {
            resume_training(folder, {},
                            [](const Json* checkpoint, Progress&) -> std::unique_ptr<TrainingTask> {
                              checkpoint->at("whiskers");
                              return nullptr;
                            });
          }).find("the checkpoint's state does not fit this program") != std::string::npos);
    CHECK(message_of<CheckpointError>([&] {
            resume_training(RunFolder(temporary.file("none")), {}, make_task);
          }).find("there is no checkpoint to resume from") != std::string::npos);
  }
}
