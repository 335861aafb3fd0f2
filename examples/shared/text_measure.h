#pragma once

#include <tapeformer/autograd/shape.h>

#include <nlohmann/json_fwd.hpp>

#include <string_view>
#include <utility>
#include <vector>

namespace tapeformer {

/// Units by which a loss is divided, so that models with different tokenizers can be compared.
struct TextSize {
  Index bytes = 0;
  Index words = 0;  ///< runs without white space, and line ends, as WikiText's perplexities count them

  TextSize& operator+=(const TextSize& other) {
    bytes += other.bytes;
    words += other.words;
    return *this;
  }
};

/// ASCII white space.
bool is_white_space(char c);
/// The size of `text`. Unless `after_white_space`, a word at its start continues one that is already counted.
TextSize size_of_text(std::string_view text, bool after_white_space = true);

/// The loss on the tokens of a text.
struct TextLoss {
  double nats = 0, tokens = 0;  ///< the sum of losses, and the number of tokens
  TextSize text;                ///< the size of these tokens' text; 0 if unknown

  /// The mean, in nats per token.
  double mean() const { return nats / tokens; }
  /// The loss in units that do not depend on the tokenizer, by their names in metrics.jsonl, "bits_per_byte"
  /// and "word_perplexity"; leaves out a unit if none of its bytes or words were counted.
  /// Source:  Merity et al. 2016, arXiv:1609.07843, whose tokens are words and line ends
  std::vector<std::pair<std::string, double>> units() const;
  /// "1.4697 nats per token, perplexity 4.348, 2.1203 bits per byte, perplexity per word 2907"
  std::string to_string() const;
  /// The mean, its perplexity, and the units, by their names in metrics.jsonl.
  nlohmann::ordered_json json() const;
};

}  // namespace tapeformer
