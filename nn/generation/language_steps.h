#pragma once

#include <tapeformer/nn/generation/cached_steps.h>
#include <tapeformer/nn/transformer/decoder_only.h>

namespace tapeformer {

/// Texts that a language model goes on with: at first one row, the prompt. A model with prefix sees what is
/// left of the prompt in both directions.
class LanguageSteps : public CachedSteps {
 public:
  /// The model must stay where it is.
  explicit LanguageSteps(const DecoderOnly& model, const std::optional<CacheConfig>& cache = CacheConfig{},
                         bool graphs = true);

  /// The first tokens, of one row. Called once, first.
  /// Shapes:  -> logits [1, V] of what may follow
  /// Throws:  ShapeError if there are none, or one is outside the vocabulary; Error when called again
  Tensor prompt(const TokenIds& tokens);
  /// Throws:  ShapeError before the prompt, and what CachedSteps throws
  Tensor step(const TokenIds& tokens) override;
  Index cache_bytes() const { return caches_ ? caches_->bytes() : 0; }

 private:
  LayerCaches* caches() override { return caches_ ? &*caches_ : nullptr; }
  void reorder_kept(const std::vector<std::int32_t>& rows) override;
  Tensor logits(const Tensor& ids) override;

  const DecoderOnly& model_;
  std::optional<LayerCaches> caches_;
  Index prompt_ = 0;  // tokens of the prompt
};

}  // namespace tapeformer
