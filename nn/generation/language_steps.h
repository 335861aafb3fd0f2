#pragma once

#include <tapeformer/nn/generation/cached_steps.h>
#include <tapeformer/nn/transformer/decoder_only.h>

namespace tapeformer {

/// Texts that a language model continues. The first row is the prompt. A model with a prefix sees the part
/// of the prompt within the context in both directions.
class LanguageSteps : public CachedSteps {
 public:
  /// The model must stay where it is.
  explicit LanguageSteps(const DecoderOnly& model, const std::optional<CacheConfig>& cache = CacheConfig{},
                         bool graphs = true);

  /// Sets the first tokens, of one row. Must be called first, and only once.
  /// Shapes:  -> logits [1, V] of the next token
  /// Throws:  ShapeError if there are none, or one is outside the vocabulary; Error when called again
  Tensor prompt(const TokenIds& tokens);
  /// Throws:  ShapeError before the prompt, and as CachedSteps
  Tensor step(const TokenIds& tokens) override;

 private:
  LayerCaches* caches() override { return caches_ ? &*caches_ : nullptr; }
  void reorder_kept(const std::vector<std::int32_t>& rows) override;
  Tensor logits(const Tensor& ids) override;

  const DecoderOnly& model_;
  std::optional<LayerCaches> caches_;
};

}  // namespace tapeformer
