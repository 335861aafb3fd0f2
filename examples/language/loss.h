#pragma once

#include <tapeformer/data/token_windows.h>
#include <tapeformer/data/tokenizers/tokenizer.h>
#include <tapeformer/examples/language/objective.h>
#include <tapeformer/examples/shared/text_measure.h>
#include <tapeformer/examples/train/task.h>
#include <tapeformer/nn/transformer/decoder_only.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

/// The batch for a model: inputs and targets, i32 [B, T], where a target of -1 does not count; prefix
/// lengths, i32 [B], and starts and positions of documents, or undefined. The model's objective prepares it;
/// `first` is the number of the first row among all, and `mask` the mask token. With `document_end`, all rows
/// become one row of documents: one begins with each row and with each token after an end, and such a token
/// is not a target. Uses the tensors of `batch` without a copy.
Batch language_batch(const DecoderOnlyConfig& config, TokenBatch batch, std::uint64_t seed, Index first,
                     std::optional<std::int32_t> document_end = {}, std::int32_t mask = 0);
/// Replaces all targets of the batch by -1, so that none counts.
void ignore_targets(Batch& batch);
/// The mean loss of the targets that count.
Tensor language_loss(const DecoderOnly& model, const Batch& batch, const HeadLossConfig& head = {});

/// The loss of random batches.
struct EstimatedLoss : TextLoss {
  Index batches = 0;          ///< the number drawn, without batches in which no target counts
  double standard_error = 0;  ///< of the mean, from the variation between batches; 0 for fewer than two

  /// " ± 0.0021", half the width of the exact mean's 95 % interval; empty if the standard error is unknown.
  std::string error_text() const;
};

/// Measures models on the tokens of a text, in rows of the run's length. Where several processes measure
/// the same model, each computes its share of every batch's rows, and all get the same result.
class LanguageMeasure {
 public:
  /// Throws: DataError if there are fewer than two tokens
  LanguageMeasure(TokenFile file, const Tokenizer& tokenizer, Index rows, Index length, std::uint64_t seed,
                  const HeadLossConfig& head, std::optional<std::int32_t> document_end = {});

  /// Called before each batch; an exception from it ends the measurement. Only for a single process: other
  /// ranks would wait for its sums.
  using Check = std::function<void()>;
  /// The mean over the whole text, in adjacent windows; a token sees those before it in its window. Every
  /// token except the first is a target once; for a model with a prefix, only those after the prefix of
  /// their window; for an encoder, the masked ones. The objective's draws follow from the window's place and
  /// depend neither on the seed nor on the batch size.
  TextLoss exact(DecoderOnly& model, Progress& progress, const Check& check = {},
                 Communicator& ranks = *communicator_alone()) const;
  /// The mean over the first `batches` random batches.
  EstimatedLoss estimate(DecoderOnly& model, Index batches, Progress& progress, const Check& check = {},
                         Communicator& ranks = *communicator_alone()) const;
  /// A loss that is finite if the weights are: that of the first `rows` rows of random batch `number`, by
  /// this process alone. The inputs are the targets, because a few rows may hold no answer.
  double trial(DecoderOnly& model, Index number, Index rows) const;
  const TokenFile& file() const { return windows_.file(); }

 private:
  class Sum;

  TokenWindows windows_;
  /// A token's text: its size, which depends on whether the text before ends with white space, and whether it
  /// ends with white space itself, or is empty.
  struct TokenText {
    TextSize after_word, after_white_space;
    bool ends_with_white_space = true;
  };
  std::vector<TokenText> texts_;  // of each token
  Index rows_, length_;
  std::uint64_t seed_;
  HeadLossConfig head_;
  std::optional<std::int32_t> document_end_;
  std::int32_t mask_;
};

}  // namespace tapeformer
