#pragma once

#include <tapeformer/data/token_windows.h>
#include <tapeformer/data/tokenizers/text_tokenizer.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/nn/transformer/decoder_only.h>

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

/// A batch as a model trains on it. For a model with prefix, each row begins with a prompt that sees itself
/// in both directions, and what is within it is no target.
struct LanguageBatch {
  Tensor inputs, targets;  ///< i32 [B, T]; a target of -1 does not count
  Tensor prefix_lengths;   ///< i32 [B], or undefined
  Index counted = 0;       ///< targets that count

  /// Batches are made on the CPU.
  LanguageBatch to(Device device) const;
};

/// Takes over the tensors of `batch`. Prefix lengths are drawn from 1 .. T - 1, a function of (seed, first +
/// row): `first` is the number of the first row among all rows.
LanguageBatch language_batch(const DecoderOnlyConfig& config, TokenBatch batch, std::uint64_t seed,
                             Index first);

/// A mean over targets.
struct MeanLoss {
  double nats = 0;  ///< a token
  Index tokens = 0;
  Index bytes = 0;            ///< that these tokens stand for; 0 if unknown
  Index batches = 0;          ///< that were drawn; 0 where nothing was
  double standard_error = 0;  ///< of `nats`, from how these batches differ; 0 where they are fewer than two

  double bits_per_byte() const;
  /// " ± 0.0021"; nothing where there is no telling.
  std::string error_text() const;
};

/// What a model is measured on: the tokens of a text, in rows of a training's length.
class LanguageMeasure {
 public:
  /// Throws: DataError if there are fewer than two tokens
  LanguageMeasure(TokenFile file, const TextTokenizer& tokenizer, Index rows, Index length,
                  std::uint64_t seed, const HeadLossConfig& head);

  /// Called before each batch; what it throws ends the measurement.
  using Check = std::function<void()>;
  /// Over the whole text. Windows lie side by side, and a token sees what is before it in its window. Every
  /// token but the first is a target once; for a model with prefix, only those behind the prefix of their
  /// window, whose length follows from the window's place: neither seed nor batch size decide on it.
  MeanLoss exact(DecoderOnly& model, Progress& progress, const Check& check = {}) const;
  /// Over `batches` random batches, drawn anew for each `number`.
  MeanLoss estimate(DecoderOnly& model, Index batches, Index number, Progress& progress,
                    const Check& check = {}) const;
  const TokenFile& file() const { return windows_.file(); }

 private:
  class Sum;

  TokenWindows windows_;
  std::vector<Index> bytes_of_;  // bytes of each token
  Index rows_, length_;
  std::uint64_t seed_;
  HeadLossConfig head_;
};

}  // namespace tapeformer
