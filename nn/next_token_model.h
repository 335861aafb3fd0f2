#pragma once

#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace tapeformer {

using TokenIds = std::vector<std::int32_t>;

/// A model as a search sees it: rows of tokens that go on one at a time.
class NextTokenModel {
 public:
  virtual ~NextTokenModel() = default;
  /// Row i goes on with tokens[i].
  /// Shapes:  -> logits [R, V] of what may follow
  virtual Tensor step(const TokenIds& tokens) = 0;
  /// Row i becomes what row rows[i] was; their number may change.
  virtual void reorder(const std::vector<std::int32_t>& rows) = 0;
};

/// The rows' tokens from `first` on; all rows are of one length.
/// Shapes:  -> i32 [R, T], on the CPU
Tensor token_columns(const std::vector<TokenIds>& rows, Index first);

/// Translations of encoded sources, at first one row for each. With a cache a step computes its new tokens
/// only, without one everything anew; the logits are the same. Past max_length positions a row's oldest
/// tokens are dropped as context_start() says, unless positions are rotary: these go on to their stated
/// limit, and the step beyond it is refused.
class TranslationSteps : public NextTokenModel {
 public:
  /// Shapes:  memory [B, S, C], memory_mask bool [B, S]
  TranslationSteps(const EncoderDecoder& model, const Tensor& memory, const Tensor& memory_mask,
                   const std::optional<CacheConfig>& cache = CacheConfig{});

  Tensor step(const TokenIds& tokens) override;
  void reorder(const std::vector<std::int32_t>& rows) override;
  /// Bytes in the caches.
  Index cache_bytes() const { return state_ ? state_->bytes() : 0; }

 private:
  const EncoderDecoder& model_;
  Tensor memory_, memory_mask_;  // a row each, where there is no cache
  std::optional<DecoderState> state_;
  std::vector<TokenIds> rows_;
  Index start_ = 0;  // the first token that the model looks at
};

}  // namespace tapeformer
