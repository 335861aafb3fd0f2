#pragma once

#include <tapeformer/examples/language_data.h>
#include <tapeformer/examples/language_evaluate.h>
#include <tapeformer/examples/language_loss.h>
#include <tapeformer/examples/training_run.h>

namespace tapeformer {

/// Trains a DecoderOnly on windows of a token file.
class LanguageTask : public TrainingTask {
 public:
  /// Training starts from `model` as it is. Throws: DataError if the texts are too short, or the model has
  /// fewer tokens than the data
  LanguageTask(const LanguageOptions& options, LanguageData data, DecoderOnly model, Progress& progress);

  const TrainingOptions& options() const override { return options_.training; }
  Module& model() override { return model_; }
  BatchLoss next_loss() override;
  /// The exact mean decides on the best weights, unless only estimates are asked for.
  Validation validate(Progress& progress) override;
  double trial_loss(Progress& progress) override;
  void show_samples(Progress& progress) override;
  Index epoch() const override { return batches_ * options_.batch / windows_.windows(); }
  void describe(const RunFolder& folder) override;
  void save_state(Json& state) const override;
  /// Throws: DataError if the checkpoint is of other data
  void load_state(const Json& state) override;
  Json conclude(Progress& progress) override;
  const char* program() const override { return "train_language_model"; }
  const char* purpose() const override { return "generate"; }

 private:
  LanguageOptions options_;
  LanguageData data_;
  DecoderOnly model_;
  TokenWindows windows_;
  LanguageMeasure measure_;
  Index batches_ = 0;  // of the training, so far
};

/// A new training in `folder`; returns the exit code. Throws: DataError, CheckpointError, Error
int train_language_model(const RunFolder& folder, const LanguageOptions& options,
                         const TrainingControl& control);
/// Goes on from the folder's checkpoint as if there had been no break. Throws: CheckpointError, DataError
int resume_language_model(const RunFolder& folder, const TrainingControl& control);

}  // namespace tapeformer
