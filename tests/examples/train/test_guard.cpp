#include <tapeformer/examples/shared/program.h>
#include <tapeformer/tests/examples/toy_task.h>

#include <cmath>
#include <limits>

using namespace tapeformer;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
const std::string kAdvice = "; try a lower --learning-rate or a longer --warmup";

/// A task whose ninth step fails, with checkpoints at steps 5 and 10.
ToyTask spoilt(const std::string& policy, double factor = kNan) {
  ToyTask task(0.3);
  task.training.checkpoint_every = 5;
  task.training.non_finite = policy;
  task.loss_factor = factor;
  task.from_step = 8;
  task.to_step = 9;
  return task;
}

/// A task that fails from its ninth step on.
ToyTask spoilt_for_good() {
  ToyTask task = spoilt("skip");
  task.training.steps = task.training.validate_every = task.training.checkpoint_every = 40;
  task.to_step = 40;
  return task;
}

/// A task whose 55th of 60 steps has a loss a hundred times as large.
ToyTask spiked(const std::string& policy) {
  ToyTask task;
  task.training.steps = 60;
  task.training.validate_every = 30;
  task.training.loss_spike = policy;
  task.loss_factor = 100;
  task.from_step = 54;
  task.to_step = 55;
  return task;
}

/// The numbers of the losses that were found, from 0.
std::vector<int> found(const std::vector<double>& losses, double deviations = 6) {
  LossWatch watch;
  std::vector<int> numbers;
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (watch.is_far_above(losses[i], deviations)) numbers.push_back(static_cast<int>(i));
  return numbers;
}

/// Losses around a mean that falls, with a deviation of 0.07.
std::vector<double> usual(int count) {
  std::vector<double> losses;
  for (int i = 0; i < count; ++i)
    losses.push_back(2 + 2 * std::exp(-i / 300.0) + 0.1 * std::sin(12.9898 * i * i));
  return losses;
}

}  // namespace

TEST_CASE("parameters without a gradient in the first two steps are named") {
  const std::string note =
      "note: no gradient, or exactly zero, in the first 2 steps, so these are not trained: linear.weight, "
      "linear.bias\n";
  for (const auto& [from, to] : {std::pair(0, 0), {0, 1}, {0, 2}, {1, 12}}) {  // steps without a gradient
    const CapturedLog log;
    const TemporaryFolder temporary;
    ToyTask task;
    task.loss_factor = 0;
    task.from_step = from, task.to_step = to;
    CHECK(start(RunFolder(temporary.file("run")), task) == kExitSuccess);
    CHECK(log.says(note) == (from == 0 && to == 2));
    CHECK(log.says("not trained") == (from == 0 && to == 2));
  }
}

TEST_CASE_FIXTURE(Logged, "a value that is not finite stops the run before it can be saved") {
  const auto refusal = [&](const std::string& name, const std::function<void(ToyTask&)>& spoil) {
    ToyTask task;
    spoil(task);
    const std::string message = message_of<BadStep>([&] { start(RunFolder(temporary.file(name)), task); });
    const std::string kept =
        "; stopped. The checkpoint of step 0 in " + temporary.file(name) + " is intact" + kAdvice;
    return message.substr(0, message.find(kept));
  };
  CHECK(refusal("loss", [](ToyTask& task) { task.loss_factor = kNan; }) ==
        "step 1: the loss is nan: [affine] forward gave the first value that is not finite: nan at element "
        "0 of f64[]");
  CHECK(refusal("norm", [](ToyTask& task) { task.loss_factor = 1e300; }) ==
        "step 1: the gradient's norm is inf");
  CHECK(refusal("validation", [](ToyTask& task) { task.validations = {kNan}; }) ==
        "step 4: the validation loss is nan");
  CHECK(refusal("trial", [](ToyTask& task) { task.trial = kNan; }) ==
        "step 0: the loss after the update is nan; stopped. Nothing was saved" + kAdvice);
  CHECK_FALSE(RunFolder(temporary.file("trial")).has_checkpoint());
  CHECK_FALSE(std::filesystem::exists(temporary.file("validation/weights.safetensors")));
}

TEST_CASE_FIXTURE(RunCase, "a step that is not finite can be skipped, and is counted") {
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
  CHECK(folder.checkpoint_state().at("guard").at("bad_in_a_row") == 0);  // good steps follow
}

TEST_CASE_FIXTURE(RunCase, "a finite gradient of a loss that is not finite makes an update, which is said") {
  struct InfiniteLoss : ToyTask {
    InfiniteLoss() : ToyTask(spoilt("skip", 2)) {}
    Tensor loss(const Batch& batch) override {
      const Tensor loss = ToyTask::loss(batch);
      return batch.tensors[2].item() == 1 ? loss : affine(loss, 1, std::numeric_limits<double>::infinity());
    }
  };
  InfiniteLoss task;
  CHECK(start(folder, task) == kExitSuccess);
  CHECK(log.says("step 9: the loss is inf"));
  CHECK(log.says("; its update was made"));
}

TEST_CASE_FIXTURE(Logged, "a skipped step leaves no trace in the optimizer and the average") {
  // A run that skips its last step, and one that ends before it.
  const auto trained = [&](const char* name, Index steps, double factor) {
    const RunFolder folder(temporary.file(name));
    ToyTask task;
    task.training.schedule = "constant";
    task.training.average_decay = 0.9;
    task.training.non_finite = "skip";
    task.training.steps = steps;
    task.loss_factor = factor;
    task.from_step = 8;
    CHECK(start(folder, task) == kExitSuccess);
    const SafetensorsFile file = SafetensorsFile::open(folder.file("checkpoint.safetensors"));
    std::string state = file.metadata().at("optimizer_counters");
    for (const std::string& tensor : file.names())
      for (const double x : file.tensor(tensor).to_vector<double>()) state += format(" {:.17g}", x);
    return state;
  };
  CHECK(trained("skipped", 9, kNan) == trained("shorter", 8, 1));
}

TEST_CASE_FIXTURE(Logged,
                  "ten bad steps in a row are too many, whether or not the run was stopped within them") {
  ToyTask task = spoilt_for_good();
  const std::string message = message_of<BadStep>([&] { start(RunFolder(temporary.file("whole")), task); });
  CHECK(message.find("step 18: the loss is nan") == 0);
  CHECK(has(message, "; stopped. The checkpoint of step 0 in "));
  const RunFolder broken(temporary.file("broken"));
  const std::string in_steps = message_of<BadStep>([&] { run_in_steps(broken, spoilt_for_good); });
  CHECK(in_steps.find("step 18: the loss is nan") == 0);

  struct Noted : ToyTask {  // nine steps without a loss, one far above the others, and two more without
    Batch batch(Index number, BatchShare share) override {
      loss_factor = number < 60 ? 1 : number == 69 ? 100 : kNan;
      return ToyTask::batch(number, share);
    }
  };
  Noted task_with_note;
  task_with_note.training.steps = task_with_note.training.validate_every = 72;
  task_with_note.training.non_finite = "skip";
  CHECK(start(RunFolder(temporary.file("noted")), task_with_note) == kExitSuccess);
}

TEST_CASE("a bad step's batches are computed again from the same random state, which then advances") {
  struct BadDraw : ToyTask {
    BadDraw() : ToyTask(spoilt("skip", 1)) {}
    std::uint64_t bad = ~std::uint64_t{0};  // where the draws of the ninth batch begin
    Tensor loss(const Batch& batch) override {
      const std::uint64_t here = *toy.named_counters().at(0).second;
      const Tensor loss = ToyTask::loss(batch);
      if (++times == 9) bad = here;
      return here == bad ? affine(loss, kNan, 0) : loss;
    }
    int times = 0;
  };
  const CapturedLog log;
  const TemporaryFolder temporary;
  const RunFolder folder(temporary.file("run")), other(temporary.file("other"));
  BadDraw task;
  CHECK(start(folder, task) == kExitSuccess);
  CHECK(task.times == 12 + 1);
  CHECK(log.says("step 9: the loss is nan: [affine] forward"));
  ToyTask known = spoilt("skip");
  CHECK(start(other, known) == kExitSuccess);
  CHECK(weights_in(folder) == weights_in(other));

  ToyTask in_parts = spoilt("skip"), healthy = spoilt("skip", 1);
  in_parts.training.accumulate = healthy.training.accumulate = 3;
  in_parts.from_step = 6;  // the third step
  in_parts.to_step = 9;
  CHECK(start(RunFolder(temporary.file("parts")), in_parts) == kExitSuccess);
  CHECK(start(RunFolder(temporary.file("healthy")), healthy) == kExitSuccess);
  CHECK(log.says("step 3: the loss is nan: [affine] forward"));
  CHECK(*in_parts.toy.named_counters().at(0).second == *healthy.toy.named_counters().at(0).second);
}

TEST_CASE_FIXTURE(Logged, "a loss far above the last ones is logged, skipped or stops the run") {
  const auto trained = [&](const std::string& policy, double factor = 100) {
    const RunFolder folder(temporary.file(policy + format("{}", factor)));
    ToyTask task = spiked(policy);
    task.loss_factor = factor;
    CHECK(start(folder, task) == kExitSuccess);
    return folder;
  };
  const RunFolder noted = trained("note"), skipped = trained("skip");
  CHECK(log.says("far above the last ones' mean of "));
  CHECK(log.says("; its update was made"));
  for (const auto& [folder, update] : {std::pair(noted, "made"), {skipped, "skipped"}}) {
    const auto bad = metrics(folder, "bad_step");
    REQUIRE(bad.size() == 1);
    CHECK(bad[0].at("step") == 55);
    CHECK(bad[0].at("update") == update);
  }
  CHECK(weights_in(skipped, "checkpoint.safetensors") != weights_in(noted, "checkpoint.safetensors"));
  ToyTask stopping = spiked("stop");
  CHECK(message_of<BadStep>([&] {
          start(RunFolder(temporary.file("stop")), stopping);
        }).find("step 55: the loss is ") == 0);
  check_resumes([] { return spiked("skip"); });

  // Each loss counts once among the last ones, whatever happens on spikes.
  const auto watched = [](const RunFolder& folder) {
    return folder.checkpoint_state().at("guard").at("loss_watch");
  };
  CHECK(watched(skipped).at("losses") == 60);
  CHECK(watched(trained("skip", 1)) == watched(trained("note", 1)));
}

TEST_CASE("a loss far above the last ones is found, from the 50th on, until its level is usual") {
  std::vector<double> losses = usual(500);
  CHECK(found(losses).empty());
  losses[49] += 100;
  CHECK(found(losses).empty());
  losses[49] -= 100;
  losses[50] += 100;
  losses[200] += 50;  // one high loss does not hide the next
  losses[201] += 50;
  losses[250] -= 2;
  for (std::size_t i = 300; i < losses.size(); ++i) losses[i] += 2;
  CHECK(found(losses) == std::vector<int>{50, 200, 201, 300});
  CHECK(found(losses, 0).empty());
  CHECK(found(losses, 1000).empty());
  LossWatch watch;
  for (const double loss : {1.0, 2.0, 3.0, 6.0}) watch.is_far_above(loss, 6);
  CHECK(watch.mean() == doctest::Approx(3));
}
