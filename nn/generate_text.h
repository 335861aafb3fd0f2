#pragma once

#include <tapeformer/nn/next_token_model.h>
#include <tapeformer/nn/sampling.h>
#include <tapeformer/nn/transformer/decoder_only.h>

#include <functional>

namespace tapeformer {

/// Sequences that a language model goes on with: at first one row, the prompt. With a cache a step computes
/// its new tokens only, without one everything anew; the logits are the same. A model with prefix sees the
/// prompt in both directions. Past the context a row's oldest tokens are dropped as context_start() says,
/// unless positions are rotary: these go on to their stated limit, and the step beyond it is refused.
class LanguageSteps : public NextTokenModel {
 public:
  explicit LanguageSteps(const DecoderOnly& model, const std::optional<CacheConfig>& cache = CacheConfig{});

  /// The first tokens, of one row; not empty. Called once, first.
  /// Shapes:  -> logits [1, V] of what may follow
  Tensor prompt(const TokenIds& tokens);
  Tensor step(const TokenIds& tokens) override;
  void reorder(const std::vector<std::int32_t>& rows) override;
  Index cache_bytes() const { return caches_ ? caches_->bytes() : 0; }

 private:
  Tensor next_logits();

  const DecoderOnly& model_;
  std::optional<LayerCaches> caches_;
  std::vector<TokenIds> rows_;
  Index start_ = 0;   // the first token that the model looks at
  Index prompt_ = 0;  // tokens of the prompt
};

struct TextGenerationConfig {
  SamplingConfig sampling;          ///< temperature 0 takes the likeliest token
  Index max_tokens = 256;           ///< new tokens a sample
  Index samples = 1;                ///< computed side by side; sample i draws from stream + i of the seed
  std::optional<std::int32_t> end;  ///< the token that ends a sample, and is not handed out
  std::optional<CacheConfig> cache = CacheConfig{};  ///< without one, every step computes everything anew
};

/// Called with each token as soon as it is drawn; a sample goes on as long as it returns true.
using OnToken = std::function<bool(Index sample, std::int32_t token)>;

/// Continues the prompt. A sample does not depend on the others, beyond rounding, nor on the cache. Nothing is recorded.
/// Throws:  Error if the prompt is empty or a number is out of range; ShapeError for ids outside the vocabulary
void generate_text(const DecoderOnly& model, const TokenIds& prompt, const TextGenerationConfig& config,
                   const OnToken& on_token);

}  // namespace tapeformer
