#pragma once

#include <tapeformer/data/batching.h>
#include <tapeformer/examples/progress.h>
#include <tapeformer/examples/run_folder.h>
#include <tapeformer/examples/translation_data.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/schedule.h>

#include <memory>

namespace tapeformer {

/// How a training is run, without changing what it computes (but for `threads`, which can change last bits).
struct TrainingControl {
  double max_minutes = 0;  ///< stop after so long and save; 0 for no limit
  Index threads = 0;       ///< 0: all, or on resuming as many as before
};

/// Mean loss per target token, in nats, without smoothing; over the first `most` batches unless that is 0.
double validation_loss(EncoderDecoder& model, TranslationBatches& batches, Progress& progress,
                       Index most = 0);

/// Trains an EncoderDecoder with teacher forcing in a run folder.
class TranslationTrainer {
 public:
  /// A new training. Throws: DataError, Error
  static TranslationTrainer start(const RunFolder& folder, const TranslationOptions& options,
                                  const TrainingControl& control);
  /// Goes on from the checkpoint as if there had been no break. Throws: CheckpointError, DataError
  static TranslationTrainer resume(const RunFolder& folder, const TrainingControl& control);

  /// Runs to the end, to a limit or to Ctrl-C; returns the exit code.
  /// Throws: Error if the loss is no longer finite; the last checkpoint stays
  int run();

 private:
  /// What changes from step to step besides model and optimizer.
  struct State {
    Index step = 0;
    BatchPosition position;
    double best_loss = 0;
    bool has_best = false, finished = false;
    Index validations_since_best = 0;
    double logged_loss = 0;  // sum over the steps since the last log line
    Index logged_steps = 0;
  };

  TranslationTrainer(RunFolder folder, TranslationOptions options, TrainingControl control,
                     const Json* checkpoint);

  void require_finite(double value, const char* name);
  double train_step();
  void log_step(double loss);
  void validate();
  void show_samples();
  void save_checkpoint();
  std::string status(double loss) const;
  Json state_json() const;

  RunFolder folder_;
  TranslationOptions options_;
  TrainingControl control_;
  CorpusSplit corpus_;
  Vocabularies vocabularies_;
  std::unique_ptr<TranslationBatches> train_batches_, validation_batches_;
  std::uint64_t data_fingerprint_ = 0;
  std::unique_ptr<EncoderDecoder> model_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<Schedule> schedule_;
  State state_;
  Progress progress_;
  double started_ = 0, log_started_ = 0;
  Index first_step_ = 0, timed_tokens_ = 0;  // tokens since log_started_
  Index checkpointed_step_ = -1;
};

}  // namespace tapeformer
