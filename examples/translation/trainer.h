#pragma once

#include <tapeformer/data/batching.h>
#include <tapeformer/examples/shared/summary.h>
#include <tapeformer/examples/shared/text_measure.h>
#include <tapeformer/examples/train/task.h>
#include <tapeformer/examples/translation/data.h>

#include <memory>

namespace tapeformer {

/// The loss of an epoch without smoothing. A sentence's end counts as a token, and as a line end of the text
/// that `words` decodes. Each rank computes its share of every batch, and all get the same result.
TextLoss validation_loss(EncoderDecoder& model, TranslationBatches& batches, const Tokenizer& words,
                         Progress& progress, Communicator& ranks = *communicator_alone());

/// "3 pairs of more than 128 tokens and 1 pair with a side of no tokens"; empty if nothing was left out.
std::string left_out_text(const TranslationBatches& batches, const BatchingConfig& config);

/// Trains an EncoderDecoder with teacher forcing.
class TranslationTask : public TrainingTask {
 public:
  /// A new run. Throws: DataError, Error
  TranslationTask(const TranslationOptions& options, Progress& progress);
  /// The run that saved `checkpoint`, whose vocabularies and config are in `folder`.
  /// Throws: CheckpointError, DataError
  TranslationTask(const RunFolder& folder, const Json& checkpoint, Progress& progress);

  const TrainingOptions& options() const override { return options_.training; }
  void set_steps(Index steps, bool is_begun) override { options_.training.set_steps(steps, is_begun); }
  Module& model() override { return *model_; }
  Batch batch(Index number, BatchShare share) override;
  Tensor loss(const Batch& batch) override;
  void adjust_gradients() override;
  Index epoch(Index batches) const override { return batches / train_batches_->batches_per_epoch(); }
  Validation validate(Progress& progress) override;
  Index validation_tokens(bool /*at_end*/) const override {
    return validation_batches_->batches_per_epoch() * options_.batch_tokens;
  }
  double trial_loss(Index batches, Progress& progress) override;
  std::vector<std::string> samples(Index batches, bool graphs) override;
  Json attention_example() override;
  void describe(const RunFolder& folder) override;
  void save_state(Json& state) const override;
  std::string summary() override { return summary_of(*model_); }
  Json conclude(Progress& progress) override;
  const char* program() const override { return "train_translation"; }

 private:
  void load_pairs(Progress& progress);
  /// Makes a new decoder start from zeros, as Marian's do: padding, its first input, gets an embedding of
  /// zeros, and too low a logit to have any probability.
  void start_from_zeros();
  /// The rows [V, C] of a table, with zeros for padding.
  Tensor without_padding(const Tensor& rows);
  void make_batches_and_model(const EncoderDecoderConfig& config, Progress& progress);

  TranslationOptions options_;
  CorpusSplit corpus_;
  Vocabularies vocabularies_;
  std::unique_ptr<TranslationBatches> train_batches_, validation_batches_;
  std::uint64_t data_fingerprint_ = 0;
  std::unique_ptr<EncoderDecoder> model_;
  Tensor not_padding_;  // [V, 1]: 1, and 0 for padding
};

}  // namespace tapeformer
