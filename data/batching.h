#pragma once

#include <tapeformer/autograd/tensor.h>
#include <tapeformer/data/sentence_frame.h>

#include <cstdint>
#include <vector>

namespace tapeformer {

/// The target of a padded position, which cross_entropy ignores.
constexpr std::int32_t kIgnored = -1;

/// A pair of sentences as ids, without the tokens of their frames.
struct EncodedPair {
  /// The ids of the two sides.
  std::vector<std::int32_t> source, target;
};

/// A padded batch of B sentence pairs: S is the longest source and T the longest target, with their frames.
struct TranslationBatch {
  Tensor source_ids;      ///< [B, S] i32: sources, padding
  Tensor source_mask;     ///< [B, S] bool: true where there is a token
  Tensor target_inputs;   ///< [B, T] i32: begin, targets without their last token, padding
  Tensor target_outputs;  ///< [B, T] i32: targets, kIgnored
  Index tokens = 0;       ///< source and target tokens that are not padding

  /// A copy on another device; batches are made on the CPU.
  TranslationBatch to(Device device) const {
    return {source_ids.to(device), source_mask.to(device), target_inputs.to(device),
            target_outputs.to(device), tokens};
  }
};

/// A position in the endless sequence of batches.
struct BatchPosition {
  /// The epoch, and the batch in it, both from 0.
  Index epoch = 0, index = 0;
};

struct BatchingConfig {
  /// The most positions in the larger of a batch's two matrices: rows times the longest side, padding
  /// included.
  Index token_budget = 4096;
  /// Pairs with a longer side, its frame included, are dropped and counted, as are pairs with an empty side,
  /// which teach nothing.
  Index max_tokens = 256;
  std::uint64_t seed = 0;  ///< seed of the shuffles
  /// If false, every epoch has the same batches in the same order, short ones first (for validation).
  bool shuffle = true;
  SentenceFrame frame = {};  ///< the tokens around sources and targets
};

/// Batches of pairs of about the same length, epoch after epoch. Which pairs share a batch and the order of
/// the batches change with every epoch, as a pure function of (seed, epoch).
class TranslationBatches {
 public:
  /// Throws:  DataError if the budget or the limit is not positive, or no pair has tokens and is within both
  TranslationBatches(std::vector<EncodedPair> pairs, const BatchingConfig& config);

  /// The batch at position(), or the share of process `rank` where `ranks` processes read the same batches,
  /// padded by itself. A process whose share is empty gets the first pair with all targets ignored, and a
  /// count of no tokens. Advances the position, at the end of an epoch into the next one.
  TranslationBatch next(int rank = 0, int ranks = 1);
  /// The position of the batch that next() returns.
  BatchPosition position() const { return position_; }
  /// Throws:  DataError if there is no such batch
  void seek(BatchPosition position);

  /// The number of batches, the same in every epoch.
  Index batches_per_epoch() const { return static_cast<Index>(starts_.size()) - 1; }
  /// Pairs in one epoch.
  Index pairs() const { return static_cast<Index>(order_.size()); }
  /// The number of pairs dropped because a side was too long.
  Index dropped() const { return dropped_; }
  /// The number of pairs dropped because a side had no tokens.
  Index dropped_empty() const { return dropped_empty_; }
  /// Source and target tokens in one epoch, without padding.
  Index tokens() const { return tokens_; }
  /// The share of an epoch's positions that is padding, in [0, 1).
  double padding_share() const { return 1 - static_cast<double>(tokens_) / static_cast<double>(positions_); }

 private:
  void order_epoch(Index epoch);
  void order_batches(Index epoch);
  Index source_length(Index pair) const;
  Index target_length(Index pair) const;

  std::vector<EncodedPair> pairs_;
  BatchingConfig config_;
  std::vector<Index> order_;        // pairs by length, ties in the epoch's random order
  std::vector<Index> starts_;       // where in order_ a batch starts; the last entry is the end
  std::vector<Index> batch_order_;  // the epoch's order of the batches
  BatchPosition position_;
  Index dropped_ = 0, dropped_empty_ = 0, tokens_ = 0, positions_ = 0;
};

}  // namespace tapeformer
