#pragma once

#include <tapeformer/autograd/communication/communicator.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/examples/shared/training_options.h>
#include <tapeformer/nn/layer_record.h>
#include <tapeformer/nn/module.h>

namespace tapeformer {

/// The input of one pass of the model.
struct Batch {
  std::vector<Tensor> tensors;  ///< on the model's device, in the task's own order
  Index counted = 0;            ///< tokens over which the loss is averaged
  Index tokens = 0;             ///< tokens computed, for the speed

  /// A copy on another device; batches are made on the CPU. Undefined tensors stay undefined.
  Batch to(Device device) const {
    Batch moved = *this;
    for (Tensor& x : moved.tensors)
      if (x.defined()) x = x.to(device);
    return moved;
  }
};

/// The part of each batch that a process computes.
struct BatchShare {
  int rank = 0, ranks = 1;
};

struct Validation {
  double loss = 0;  ///< in nats per token; the weights with the lowest are the best
  std::vector<std::pair<std::string, double>> further;  ///< more fields for metrics.jsonl
  std::string remark;                                   ///< for the log after loss and perplexity: ", ..."

  /// Adds each expert's share of its router's choices to the fields, and the extremes to the remark. `layer`
  /// names the layer of a router: "0", "encoder.0".
  void add_expert_shares(const LayerRecord& record, const std::function<std::string(Index router)>& layer);
};

/// While one lives, the model is in evaluation mode, and nothing is recorded.
class Evaluation {
 public:
  explicit Evaluation(Module& model) : model_(model) { model_.eval(); }
  ~Evaluation() { model_.train(); }

 private:
  Module& model_;
  const NoGradGuard pause_;
};

/// The subject of a training run: a model, its data, and the loss of a batch.
class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  /// Sets the processes that share batches, validations and conclude(), which all of them must call alike.
  /// Validations are the same for all. Without a call, this process is alone.
  void set_ranks(std::shared_ptr<Communicator> ranks) { ranks_ = std::move(ranks); }
  Communicator& ranks() const { return *ranks_; }

  virtual const TrainingOptions& options() const = 0;
  /// Calls set_steps() of the options and adapts to the new number.
  virtual void set_steps(Index steps, bool is_begun) = 0;
  virtual Module& model() = 0;

  /// This process's part of a batch of the run, by its number from 0: step s takes the options().accumulate
  /// batches from number s * accumulate on. A process whose share is empty gets a batch of the same tensors
  /// that counts no tokens.
  virtual Batch batch(Index number, BatchShare share) = 0;
  /// The model's mean loss on a batch, in nats, in training mode. Called with an open tape; computed from the
  /// model and the batch's tensors alone, so that a GPU can replay it on others of the same shapes.
  virtual Tensor loss(const Batch& batch) = 0;
  /// Called with the gradients of a step's batches, before they are clipped and used.
  virtual void adjust_gradients() {}
  /// The steps, rising, at which batches change their shape; they are shares of options().steps.
  virtual std::vector<Index> batch_changes() const { return {}; }
  /// Passes over the training data after `batches` batches, for metrics.jsonl.
  virtual Index epoch(Index batches) const = 0;

  virtual Validation validate(Progress& progress) = 0;
  /// About the tokens computed for a validation, or `at_end` for conclude(); any unit that both have will do.
  virtual Index validation_tokens(bool /*at_end*/) const { return 1; }
  /// A loss that is quick to compute and not finite if the weights are ruined, after `batches` batches.
  virtual double trial_loss(Index batches, Progress& progress) = 0;
  /// At most options().samples readable outputs of the model after `batches` batches. `graphs` is as in
  /// Compute.
  virtual std::vector<std::string> samples(Index batches, bool graphs) = 0;
  /// Attention weights of an example, for the report: {"rows": labels, "columns": labels, "layers":
  /// [{"name": text, "heads": [a row of weights for each label of `rows`, ...]}, ...]}; null for nothing.
  virtual Json attention_example();

  /// Writes the files of a new run: config.json, vocabularies.
  virtual void describe(const RunFolder& folder) = 0;
  /// Adds the task's options and state to a checkpoint's.
  virtual void save_state(Json& state) const = 0;
  /// Throws: DataError if the checkpoint belongs to other data
  virtual void load_state(const Json& /*state*/) {}
  /// The model's configuration and parameters, for --summary.
  virtual std::string summary();
  /// Names of the formats that can hold the model; empty for a program without exports.
  virtual std::string exports() const { return {}; }
  /// Called at the end of the run, with the best weights in the model. The result goes into the last line of
  /// metrics.jsonl.
  virtual Json conclude(Progress& progress);

  /// The program's name.
  virtual const char* program() const = 0;

 private:
  std::shared_ptr<Communicator> ranks_ = communicator_alone();
};

}  // namespace tapeformer
