#pragma once

#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tapeformer {

using TokenIds = std::vector<std::int32_t>;

struct SearchConfig {
  Index beam = 1;               ///< hypotheses kept; 1 is greedy search
  double length_penalty = 0.6;  ///< alpha: a hypothesis scores log p / ((5 + length) / 6)^alpha; 0 for log p
  Index max_tokens = 0;         ///< longest output; 0 for twice the source and ten more
  Index batch = 64;             ///< sentences decoded side by side
  std::int32_t padding = 0, begin = 2, end = 3;  ///< the ids every tokenizer uses
  /// Called with the number of finished sentences as they finish.
  std::function<void(Index done)> progress = {};
};

struct Hypothesis {
  TokenIds tokens;  ///< without begin and end
  double log_probability = 0;
  double score = 0;
};

/// The best output for every source by beam search, sources without end token. Deterministic; the result does
/// not depend on what else is in the batch beyond rounding. Nothing is recorded.
/// Throws:  ShapeError if a source is longer than the model's max_length - 1, or empty
/// Source:  length penalty: Wu et al. 2016, arXiv:1609.08144, section 7
std::vector<Hypothesis> beam_search(const EncoderDecoder& model, const std::vector<TokenIds>& sources,
                                    const SearchConfig& config = {});

}  // namespace tapeformer
