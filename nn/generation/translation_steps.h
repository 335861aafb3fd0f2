#pragma once

#include <tapeformer/nn/generation/cached_steps.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

namespace tapeformer {

/// Translations of encoded sources, at first one row for each.
class TranslationSteps : public CachedSteps {
 public:
  /// The model must stay where it is.
  /// Shapes:  memory [B, S, C], memory_mask bool [B, S] (true = token) or undefined
  TranslationSteps(const EncoderDecoder& model, const Tensor& memory, const Tensor& memory_mask,
                   const std::optional<CacheConfig>& cache = CacheConfig{}, bool graphs = true);

 private:
  LayerCaches* caches() override { return state_ ? &state_->tokens() : nullptr; }
  void reorder_kept(const std::vector<std::int32_t>& rows) override;
  Tensor logits(const Tensor& ids) override;

  const EncoderDecoder& model_;
  Tensor memory_, memory_mask_;  // by row, if there is no cache
  std::optional<DecoderState> state_;
};

}  // namespace tapeformer
