#pragma once

#include <tapeformer/autograd/async_readback.h>
#include <tapeformer/autograd/communication/communicator.h>
#include <tapeformer/autograd/communication/data_parallel.h>
#include <tapeformer/autograd/cuda_graph_cache.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/examples/shared/loss_watch.h>
#include <tapeformer/examples/shared/phase_clock.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/examples/shared/training_options.h>
#include <tapeformer/examples/shared/training_profile.h>
#include <tapeformer/optim/moving_average.h>

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// How a training runs. Nothing here changes what it computes, except last bits by threads and device, and
/// the rounding of the precision.
struct TrainingControl {
  double max_minutes = 0;  ///< time limit, after which it saves and stops; 0 for none
  Index steps = 0;         ///< on resuming: train up to this step, not to the run's own last one; 0: its own
  bool summary = false;    ///< only print the model's summary
  Index profile = 0;       ///< steps whose operations are timed; 0 for none
  bool dry_run = false;    ///< only say what memory and time the training would take
  bool plot = false;       ///< draw the losses on a terminal
  std::string command;     ///< the command line, for the report
  ComputeOptions compute = {};
  std::function<bool()> stops = interrupted;                   ///< asked before every batch
  std::shared_ptr<Communicator> ranks = communicator_alone();  ///< the processes that train together
  bool shard_optimizer = false;    ///< each of them keeps its share of the optimizer's state
  double collective_minutes = 10;  ///< the longest that they wait for each other; 0 for no limit
};

/// One batch's loss, on the tape that records.
struct BatchLoss {
  Tensor loss;        ///< mean over the counted tokens, in nats
  Index counted = 0;  ///< tokens in that mean
  Index tokens = 0;   ///< tokens computed, for the speed
};

/// A batch as batch_loss() uses it: the tensors that it computes from besides the model, and its numbers.
struct BatchParts {
  std::vector<Tensor*> tensors;
  Index counted = 0, tokens = 0;  ///< as BatchLoss has them
};

struct Validation {
  double loss = 0;                                      ///< in nats a token; the lowest has the best weights
  std::vector<std::pair<std::string, double>> further;  ///< more fields for metrics.jsonl
  std::string remark;                                   ///< in the log behind loss and perplexity: ", ..."
};

/// The task of a TrainingRun: a model, its data, and the loss of a batch.
class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  /// The processes that share batches, validations and conclude(), which all must call alike: losses and
  /// numbers of a batch are those of this process's part, and validations the same for all. To be set before
  /// the first batch; without, this process is alone.
  void set_ranks(std::shared_ptr<Communicator> ranks) { ranks_ = std::move(ranks); }
  Communicator& ranks() const { return *ranks_; }

  virtual const TrainingOptions& options() const = 0;
  /// options().set_steps() and what follows from it.
  virtual void set_steps(Index steps, bool is_begun) = 0;
  virtual Module& model() = 0;
  /// Makes the next batch of the training, on the model's device.
  virtual void next_batch() = 0;
  /// The steps, rising, from which on batches have another shape; they are shares of options().steps.
  virtual std::vector<Index> batch_changes() const { return {}; }
  /// Makes the next batches those of this step: all that is asked is that they have their shape.
  virtual void go_to_step(Index) {}
  /// May do the work of the next next_batch() ahead, while a GPU computes. Must not be seen in anything else:
  /// neither in the state that is saved, nor in epoch().
  virtual void prepare_batch() {}
  /// The model on that batch, in training mode. Called with an open tape.
  virtual BatchLoss batch_loss() = 0;
  /// That batch's tensors, so that a GPU can replay steps of the same shapes as a CUDA graph: batch_loss()
  /// must compute from these tensors and the model alone. Without any (the default) no graphs are used.
  virtual BatchParts batch_parts() { return {}; }
  virtual Validation validate(Progress& progress) = 0;
  /// About how many tokens the model computes for that, or for conclude(); any unit if all are alike.
  virtual Index validation_tokens(bool /*at_end*/) const { return 1; }
  /// A loss that is not finite if the weights are ruined, quickly computed.
  virtual double trial_loss(Progress& progress) = 0;
  /// Outputs of the model for somebody to look at: options().samples of them, at least one. `graphs` as
  /// Compute has it.
  virtual std::vector<std::string> samples(bool graphs) = 0;
  /// What the model attends to in an example, for the report: {"rows": labels, "columns": labels, "layers":
  /// [{"name": text, "heads": [a row of weights for each label of `rows`, ...]}, ...]}; null for nothing.
  virtual Json attention_example();
  /// Passes of the training data so far, for metrics.jsonl.
  virtual Index epoch() const = 0;

  /// Writes the files of a new run: config.json, vocabularies.
  virtual void describe(const RunFolder& folder) = 0;
  /// Adds to the checkpoint's state what next_batch needs to go on, and what the task is made from.
  virtual void save_state(Json& state) const = 0;
  virtual void load_state(const Json& state) = 0;
  /// The model's configuration and parameters, for --summary.
  virtual std::string summary();
  /// What the model can be exported to; empty for a program without exports.
  virtual std::string exports() const { return {}; }
  /// Called when the training is over, with the best weights in the model. What it returns goes into the line
  /// that ends metrics.jsonl.
  virtual Json conclude(Progress& progress);

  /// The program's name.
  virtual const char* program() const = 0;

 private:
  std::shared_ptr<Communicator> ranks_ = communicator_alone();
};

/// What a number of steps was chosen by.
struct TimePlan {
  std::vector<double> step_seconds;  ///< of a step from 0 on, and from each of batch_changes() on
  double seconds_per_validation_token = 0;
};

/// A step whose loss or gradient is not finite, or whose loss is far above the last ones.
struct BadStep : Error {
  BadStep(Index step_number, std::string step_reason, bool run_goes_back, const std::string& message)
      : Error(message), number(step_number), reason(std::move(step_reason)), goes_back(run_goes_back) {}
  Index number;
  std::string reason;
  bool goes_back;  ///< rather than stop
};

/// The loop that trains in a run folder: gradient accumulation, clipping, the schedule, validations, the
/// best weights, checkpoints, log and metrics, and stopping at a limit or at Ctrl-C. A resumed run computes
/// bit for bit what it would have without the break: a step that is stopped between its batches is computed
/// anew.
class TrainingRun {
 public:
  /// `clock` has measured what came before; the model computes as `compute` says already.
  TrainingRun(RunFolder folder, const TrainingControl& control, TrainingTask& task, Progress& progress,
              const PhaseClock& clock = {}, const Compute& compute = {default_device()});

  /// Makes the folder. The number of steps is corrected once if it was chosen by a plan. Throws: DataError
  void start(TimePlan plan = {});
  /// Gives the task as many steps as fit into options().time_budget, counted from the program's start, with
  /// the validations that they bring, by steps of a learning rate of 0. Task and model are otherwise as they
  /// were; this object is of no more use.
  TimePlan fit_budget();
  /// Tells what the training would take, each line as soon as it is known: a batch at least is computed.
  /// Task, model and this object are of no more use.
  void dry_run(const std::function<void(const std::string&)>& tell);
  /// Restores the run from its folder; `checkpoint` is the state in the folder's checkpoint. If a number of
  /// steps was asked for, which the task's options then hold, `steps_before` is the former one; else it is 0.
  /// Throws: CheckpointError
  void resume(const Json& checkpoint, Index steps_before = 0);
  /// Runs to the end, to a limit or to Ctrl-C; returns the exit code.
  /// Throws: Error if a bad step stops it (options().non_finite and loss_spike), DataError or
  ///         CheckpointError if a file cannot be read or written, which ends a training rather than to let
  ///         it go on unsaved; the last checkpoint stays
  int run();

 private:
  /// The state that changes from step to step, besides task, model and optimizer.
  struct State {
    Index step = 0;
    double best_loss = 0;
    bool has_best = false, finished = false;
    Index validations_since_best = 0;
    double logged_loss = 0;  // sum over the steps since the last log line
    Index logged_steps = 0;

    void describe(const FieldVisitor& field) {
      field("step", step);
      field("best_loss", best_loss);
      field("has_best", has_best);
      field("finished", finished);
      field("validations_since_best", validations_since_best);
      field("logged_loss", logged_loss);
      field("logged_steps", logged_steps);
    }
  };

  /// One of a step's batches, and what is needed to compute it again.
  struct StepPart {
    AsyncReadback loss;
    Index counted = 0;
    std::vector<Tensor> inputs;           // what batch_parts() showed
    std::vector<std::uint64_t> counters;  // the model's, before
  };
  /// A queued step, whose loss has not been read yet.
  struct QueuedStep {
    Index number = 0;  // from 1
    std::vector<StepPart> parts;
    Index tokens = 0, epoch = 0;
    AsyncReadback norm;
    std::optional<double> loss;  // of all ranks, once it is known
    double mean = 0;             // of the losses before, once it is known whether this one is far above
    std::optional<bool> is_far;
    bool is_spike = false;  // found before the update, which was left out
  };

  /// Two: what lies behind matrices of zeros (--zero-init) gets its first gradient in the second step.
  static constexpr Index kWatchedSteps = 2;

  int train();
  void trial_step();
  double average_over_run(const std::vector<double>& seconds) const;
  std::vector<double> seconds_of_steps(double longest);
  Index steps_within(double seconds, double per_step, double per_validation_token) const;
  void fit_steps(double seconds, double per_step, double per_validation_token, bool is_begun);
  Index first_steps() const;
  void correct_steps();
  BatchLoss pass(bool is_last);
  bool train_step();
  bool report_is_due() const;
  bool accumulates() const { return options_.accumulate > 1 || control_.ranks->size() > 1; }
  std::vector<std::uint64_t> model_counters();
  void set_model_counters(const std::vector<std::uint64_t>& values);
  double loss_of(QueuedStep& step);
  void change_steps(Index before);
  std::optional<int> advance(Index checkpoint_every);
  bool is_late() const;
  void agree(double& counted);
  void settle(std::size_t most_queued = 0);
  void log_step(QueuedStep& step, bool is_good);
  void begin_log_line();
  void visit_state(OptimizerVisitor& visitor);
  void with_evaluation_weights(const std::function<void()>& use);
  void validate();
  void save_checkpoint();
  void wait_for_checkpoint();
  void restore(const Json& checkpoint);
  BadStep bad_step(Index number, const std::string& what, const std::string& policy) const;
  void require_finite(double value, const char* name);
  bool is_far_above(QueuedStep& step);
  bool is_good(QueuedStep& step);
  void treat(const std::string& policy, Index step, const std::string& what);
  void note_bad_step(Index step, const std::string& what, const char* update);
  std::string anomaly_in(const QueuedStep& step);
  void go_back(const BadStep& bad);
  const std::string* left_out(Index step) const;
  void watch_gradients();
  void leave_out_step(const std::string& what);
  void tell_profile();
  std::string status(Index step, double loss) const;
  void begin_report();
  void write_report();
  void show_attention();
  Json report_facts();
  Index count_optimizer_bytes();
  double elapsed() const;
  void plot();
  void keep_first_weights();
  int stop(bool late);
  int finish();
  void tell_time(Json line);

  RunFolder folder_;
  TrainingControl control_;
  TrainingTask& task_;
  Progress& progress_;
  PhaseClock clock_;
  Compute compute_;
  TrainingOptions options_;
  DataParallel parallel_;
  const std::unique_ptr<Optimizer> optimizer_;
  const std::unique_ptr<MovingAverage> average_;  // none unless options_.average_decay asks for it
  Schedule schedule_;
  CudaGraphCache replay_;
  TrainingProfile profile_;
  State state_;
  TimePlan plan_;
  Index corrects_at_ = 0;      // the step after which the number of steps is corrected; 0 for never
  double first_step_end_ = 0;  // the time when the first step was done
  std::deque<QueuedStep> queued_;
  LossWatch loss_watch_;
  Index bad_steps_ = 0, bad_in_a_row_ = 0;
  std::vector<std::pair<Index, std::string>> left_out_;  // steps after the checkpoint, and what they did
  bool has_told_refusal_ = false;
  Index watched_steps_ = 0;                   // whose gradients were looked at for zeros
  std::vector<double> with_gradient_;         // for each parameter, where and when it was not zero
  bool all_stop_ = false, all_late_ = false;  // what the ranks agreed on in the last step
  std::string status_;                        // the progress line between steps
  double started_ = 0, log_started_ = 0;
  Index first_step_ = 0, timed_tokens_ = 0;  // tokens since log_started_
  double waiting_before_ = 0;  // the seconds that this rank had waited for others before it began
  double logged_waiting_ = 0;  // and by log_started_
  Index checkpointed_step_ = -1;
  std::future<void> saving_;  // the checkpoint of that step, if it is being written

  Index tokens_ = 0;                                // of all steps, before a break too
  double elapsed_before_ = 0;                       // the seconds of training before a break
  std::shared_ptr<Json> report_;                    // what report.json holds
  double report_written_ = 0, report_seconds_ = 0;  // when it was written last, and how long that took
  bool is_measured_ = false;                        // a pass was, by what follows
  Index optimizer_bytes_ = 0, pass_flops_ = 0, pass_tokens_ = 0, pass_saved_bytes_ = 0;
  std::vector<std::pair<double, double>> plotted_, plotted_validations_;  // step and loss
};

/// Makes a task: a new one, or, from the state of a checkpoint, the one that saved it.
using MakeTask = std::function<std::unique_ptr<TrainingTask>(const Json* checkpoint, Progress& progress)>;

/// A new training in `folder`; returns the exit code. Throws: DataError if the folder holds one already
int start_training(const RunFolder& folder, const TrainingControl& control, const MakeTask& make_task);
/// Goes on from the folder's checkpoint; where the control names another number of steps, `make_task` finds
/// it in the checkpoint's options. Throws: CheckpointError; Error if the run has come to that step already
int resume_training(const RunFolder& folder, const TrainingControl& control, const MakeTask& make_task);

}  // namespace tapeformer
