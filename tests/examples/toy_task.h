#pragma once

#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/examples/train/run.h>
#include <tapeformer/examples/train/start.h>
#include <tapeformer/nn/dropout.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/tests/examples/captured_log.h>
#include <tapeformer/tests/examples/metrics_lines.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <limits>

namespace tapeformer {

constexpr Index kToyInputs = 5, kToyClasses = 3, kToyExamples = 24;

/// Dropout and a linear layer.
class ToyModel : public Module {
 public:
  explicit ToyModel(double dropout = 0, std::uint64_t seed = 7)
      : ToyModel(dropout, Generator(test_seed(seed))) {}
  Tensor operator()(const Tensor& x) const { return linear_(dropout_(x)); }
  void visit(ParameterVisitor& visitor) override {
    visitor.child("dropout", dropout_);
    visitor.child("linear", linear_);
  }

 private:
  ToyModel(double dropout, Generator random)
      : dropout_({dropout}, random), linear_({kToyInputs, kToyClasses}, random) {
    to(DType::f64);
  }
  Dropout dropout_;
  Linear linear_;
};

/// Classifies random vectors, taken in turn in batches of the given sizes.
class ToyTask : public TrainingTask {
 public:
  TrainingOptions training;
  std::vector<Index> batch_sizes = {4};
  std::vector<double> validations;  ///< losses to report instead of the true ones
  double loss_factor = 1;           ///< of the losses of the batches after `from_step` up to `to_step`
  Index from_step = 0, to_step = std::numeric_limits<Index>::max();
  double trial = 0.5;
  ToyModel toy;
  std::vector<double> concluded;  ///< the true loss whenever the training was over
  Index shown = 0;                ///< times that samples were asked for

  explicit ToyTask(double dropout = 0) : toy(dropout) {
    training.steps = 12;
    training.warmup = 3;
    training.learning_rate = 0.05;
    training.validate_every = 4;
    training.log_every = 2;
    training.samples = 0;
    Generator random(test_seed(3));
    inputs_ = random_normal({kToyExamples, kToyInputs}, random);
    for (Index i = 0; i < kToyExamples; ++i) targets_.push_back(static_cast<int>(random.below(kToyClasses)));
  }

  const TrainingOptions& options() const override { return training; }
  void set_steps(Index steps, bool is_begun) override { training.set_steps(steps, is_begun); }
  Module& model() override { return toy; }
  Batch batch(Index number, BatchShare) override {
    const Index rows = batch_sizes[static_cast<std::size_t>(number) % batch_sizes.size()];
    const auto [x, y] = examples(examples_in(number), rows);
    const double factor = number >= from_step && number < to_step ? loss_factor : 1;
    return {{x, y, Tensor::scalar(factor, DType::f64)}, rows, rows};
  }
  Tensor loss(const Batch& batch) override {
    const Tensor loss = cross_entropy(toy(batch.tensors[0]), batch.tensors[1]);
    const double factor = batch.tensors[2].item();
    return factor == 1 ? loss : affine(loss, factor, 0);
  }
  Index epoch(Index batches) const override { return examples_in(batches) / kToyExamples; }
  Validation validate(Progress&) override {
    Validation result;
    result.loss = true_loss();
    if (!validations.empty()) result.loss = validations.at(static_cast<std::size_t>(validated_));
    ++validated_;
    result.further.emplace_back("times", static_cast<double>(validated_));
    result.remark = ", as a toy does it";
    return result;
  }
  double trial_loss(Index, Progress&) override { return trial; }
  std::vector<std::string> samples(Index, bool) override {
    ++shown;
    return {"a toy's </script> sample"};
  }
  void describe(const RunFolder& folder) override { folder.write("config.json", "{}\n"); }
  void save_state(Json& state) const override { state["validated"] = validated_; }
  void load_state(const Json& state) override { validated_ = state.at("validated").get<Index>(); }
  Json conclude(Progress&) override {
    concluded.push_back(true_loss());
    return {{"true_loss", concluded.back()}};
  }
  const char* program() const override { return "train_toy"; }

  /// Mean loss of `rows` examples from number `first` on.
  Tensor loss_of(const ToyModel& model, Index first, Index rows) const {
    const auto [x, y] = examples(first, rows);
    return cross_entropy(model(x), y);
  }
  double true_loss() {
    const Evaluation evaluation(toy);
    return loss_of(toy, 0, kToyExamples).item();
  }

 private:
  /// The examples in the first `batches` batches.
  Index examples_in(Index batches) const {
    Index read = 0;
    for (Index i = 0; i < batches; ++i) read += batch_sizes[static_cast<std::size_t>(i) % batch_sizes.size()];
    return read;
  }
  std::pair<Tensor, Tensor> examples(Index first, Index rows) const {
    const Tensor x = Tensor::empty({rows, kToyInputs}, DType::f64);
    const Tensor y = Tensor::empty({rows}, DType::i32);
    for (Index row = 0; row < rows; ++row) {
      const Index example = (first + row) % kToyExamples;
      for (Index i = 0; i < kToyInputs; ++i)
        x.data<double>()[row * kToyInputs + i] = inputs_.at(example * kToyInputs + i);
      y.data<std::int32_t>()[row] = targets_[static_cast<std::size_t>(example)];
    }
    return {x, y};
  }

  Tensor inputs_;
  std::vector<int> targets_;
  Index validated_ = 0;
};

constexpr double kOneStep = 1e-12;  // minutes: any step takes longer

/// Without graphs, as the toy reads a factor from the device.
inline Compute toy_compute() { return {default_device(), "f32", false}; }

inline int start(const RunFolder& folder, ToyTask& task, const TrainingControl& control,
                 bool terminal = false) {
  Progress progress(terminal);
  Session session(folder, control, task, progress, {}, toy_compute());
  TrainingRun run(session);
  run.checkpointer.start();
  return run.run();
}

inline int resume(const RunFolder& folder, ToyTask& task, const TrainingControl& control,
                  Index steps_before = 0) {
  Progress progress(false);
  Session session(folder, control, task, progress, {}, toy_compute());
  TrainingRun run(session);
  run.checkpointer.resume(folder.checkpoint_state(), steps_before);
  return run.run();
}

inline TrainingControl limited(double max_minutes) {
  TrainingControl control;
  control.max_minutes = max_minutes;
  return control;
}
inline int start(const RunFolder& folder, ToyTask& task, double max_minutes = 0) {
  return start(folder, task, limited(max_minutes));
}
inline int resume(const RunFolder& folder, ToyTask& task, double max_minutes = 0) {
  return resume(folder, task, limited(max_minutes));
}

inline std::vector<double> values_of(ToyModel& model) {
  std::vector<double> all;
  for (const auto& [path, tensor] : weights_of(model))
    for (Index i = 0; i < tensor.elements(); ++i) all.push_back(tensor.at(i));
  return all;
}

inline std::vector<double> weights_in(const RunFolder& folder,
                                      const std::string& name = "weights.safetensors") {
  ToyModel model;
  const SafetensorsFile file = SafetensorsFile::open(folder.file(name));
  load_weights(file, file.metadata().count("state") > 0 ? "model." : "", model);
  return values_of(model);
}

/// Checks that weights, checkpoints and metrics are equal to the last bit.
inline void check_same_files(const RunFolder& a, const RunFolder& b) {
  for (const char* name : {"weights.safetensors", "checkpoint.safetensors"})
    CHECK((read_file(a.file(name)) == read_file(b.file(name))));  // binary: not to be shown
  CHECK(metrics(a, "step") == metrics(b, "step"));
}

/// Runs a task that stops after every step and continues in another of its kind.
template <class MakeTask>
void run_in_steps(const RunFolder& folder, const MakeTask& make_task) {
  auto first = make_task();
  int code = start(folder, first, kOneStep);
  CHECK(code == kExitSuccess);
  for (int part = 0; part < 100 && !folder.checkpoint_state().at("finished").template get<bool>(); ++part) {
    auto task = make_task();
    code = resume(folder, task, kOneStep);
    CHECK(code == kExitSuccess);
  }
}

/// Expects the same files from a whole run and from one that stops after every step.
template <class MakeTask>
void check_resumes(const MakeTask& make_task) {
  const CapturedLog log;
  const TemporaryFolder temporary;
  const RunFolder whole(temporary.file("whole")), broken(temporary.file("broken"));
  auto at_once = make_task();
  CHECK(start(whole, at_once) == kExitSuccess);
  run_in_steps(broken, make_task);
  check_same_files(whole, broken);
}

}  // namespace tapeformer
