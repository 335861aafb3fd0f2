#pragma once

#include <tapeformer/nn/generation/language_steps.h>
#include <tapeformer/nn/generation/sampling.h>

#include <functional>

namespace tapeformer {

struct TextGenerationConfig {
  SamplingConfig sampling;         ///< temperature 0 takes the likeliest token
  Index max_tokens = 256;          ///< most new tokens per sample
  Index samples = 1;               ///< computed side by side; sample i draws from stream + i of the seed
  std::vector<std::int32_t> ends;  ///< tokens that end a sample, and are not passed on
  std::optional<CacheConfig> cache = CacheConfig{};  ///< without one, every step computes everything again
  bool graphs = true;  ///< on a GPU steps are queued as CUDA graphs: see CachedSteps
};

/// Called with each token as soon as it is drawn; a sample continues as long as it returns true.
using OnToken = std::function<bool(Index sample, std::int32_t token)>;

/// Continues the prompt, whose tokens count as seen for the repetition penalty. Except for rounding, a sample
/// does not depend on the others or on the cache. Nothing is recorded. The model should be in evaluation
/// mode: in training mode dropout is active here too.
/// Throws:  Error for a number out of range, or a logit that is NaN; ShapeError if the prompt is empty or
///          outside the vocabulary, or if prompt and max_tokens exceed rotary positions or the cache
void generate_text(const DecoderOnly& model, const TokenIds& prompt, const TextGenerationConfig& config,
                   const OnToken& on_token);

}  // namespace tapeformer
