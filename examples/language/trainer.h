#pragma once

#include <tapeformer/examples/language/data.h>
#include <tapeformer/examples/language/export.h>
#include <tapeformer/examples/language/loss.h>
#include <tapeformer/examples/shared/summary.h>
#include <tapeformer/examples/train/start.h>

namespace tapeformer {

/// The measurements of the validations and of the end of a run.
struct ValidationPlan {
  bool exact = false;      ///< every validation measures the whole validation part
  Index batches = 0;       ///< the batches of the estimate at every validation; 0 for none
  bool exact_end = false;  ///< the end measures the best weights on the whole validation part
  Index end_batches = 0;   ///< the batches of the estimate at the end; 0 for none
};

/// The plan of options.validation_kind. "auto" is decided from numbers of tokens, never from the clock:
/// measuring a token costs a third of training on it. Every validation is exact if all of them cost at most
/// 3 % of all steps, or no more than estimates; otherwise they are estimates of at least one batch that cost
/// at most 0.5 %, and the end is exact if that costs at most 2.5 %.
ValidationPlan validation_plan(const LanguageOptions& options, Index validation_tokens);

/// Trains a DecoderOnly on windows of a token file.
class LanguageTask : public TrainingTask {
 public:
  /// Starts from `model` as it is. Throws: DataError if the texts are too short, or the model has fewer
  /// tokens than the data
  LanguageTask(const LanguageOptions& options, LanguageData data, DecoderOnly model, Progress& progress);

  const TrainingOptions& options() const override { return options_.training; }
  void set_steps(Index steps, bool is_begun) override;
  Module& model() override { return model_; }
  Batch batch(Index number, BatchShare share) override;
  Tensor loss(const Batch& batch) override;
  std::vector<Index> batch_changes() const override;
  Index epoch(Index batches) const override;
  /// The exact mean, if there is one, decides which weights are best; else the estimate, whose batches are
  /// the same at every validation, so that only the model differs.
  Validation validate(Progress& progress) override;
  Index validation_tokens(bool at_end) const override;
  double trial_loss(Index batches, Progress& progress) override;
  std::vector<std::string> samples(Index batches, bool graphs) override;
  Json attention_example() override;
  void describe(const RunFolder& folder) override;
  void save_state(Json& state) const override;
  /// Throws: DataError if the checkpoint belongs to other data
  void load_state(const Json& state) override;
  std::string summary() override { return summary_of(model_); }
  std::string exports() const override { return exports_text(model_.config(), data_.tokenizer.get()); }
  Json conclude(Progress& progress) override;
  const char* program() const override { return "train_language_model"; }

 private:
  BatchShape shape_of(Index batch) const;
  TokenWindows windows(Index context) const;

  LanguageOptions options_;
  LanguageData data_;
  DecoderOnly model_;
  std::vector<BatchShape> shapes_;
  LanguageMeasure measure_;
  ValidationPlan plan_;
};

/// A new run in `folder`; returns the exit code. Throws: DataError, CheckpointError, Error
int train_language_model(const RunFolder& folder, const LanguageOptions& options,
                         const TrainingControl& control);
/// Resumes from the folder's checkpoint as if there had been no interruption. Throws: CheckpointError,
/// DataError
int resume_language_model(const RunFolder& folder, const TrainingControl& control);

}  // namespace tapeformer
