#pragma once

#include <tapeformer/nn/generation/search.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

namespace tapeformer {

/// The best output for every source by beam search. Sources have no end token. Deterministic; except for
/// rounding, the result does not depend on the rest of the batch or on the cache. An empty source has an
/// empty output. Nothing is recorded. Outputs may be longer than max_length positions: see CachedSteps.
/// Throws:  ShapeError if a source with its end exceeds the model's max_length, or max_tokens the stated
///          limit of rotary positions; Error if a logit is NaN
std::vector<Hypothesis> beam_search(const EncoderDecoder& model, const std::vector<TokenIds>& sources,
                                    const SearchConfig& config = {});

/// An output for every source, drawn token by token from a random stream of its own, so that it does not
/// depend on the other sources. `beam` is ignored.
/// Throws:  as beam_search; Error for a temperature, top_k or top_p out of range
std::vector<Hypothesis> sample(const EncoderDecoder& model, const std::vector<TokenIds>& sources,
                               const SamplingConfig& sampling, const SearchConfig& config = {});

}  // namespace tapeformer
