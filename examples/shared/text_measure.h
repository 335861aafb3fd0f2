#pragma once

#include <tapeformer/autograd/shape.h>

#include <nlohmann/json_fwd.hpp>

#include <string_view>
#include <utility>
#include <vector>

namespace tapeformer {

/// The units that a loss is divided by, so that models of different tokenizers compare.
struct TextSize {
  Index bytes = 0;
  Index words = 0;  ///< runs of anything but white space, and line ends, as perplexities of WikiText count

  TextSize& operator+=(const TextSize& other) {
    bytes += other.bytes;
    words += other.words;
    return *this;
  }
};

/// ASCII white space.
bool is_white_space(char c);
/// The size of `text`; a word that goes on from before it, unless that ends with white space, is not counted.
TextSize size_of_text(std::string_view text, bool after_white_space = true);

/// The loss on the tokens of a text.
struct TextLoss {
  double nats = 0, tokens = 0;  ///< sums
  TextSize text;                ///< of these tokens; 0 if unknown

  /// In nats per token.
  double mean() const { return nats / tokens; }
  /// "bits_per_byte" and "word_perplexity", as metrics.jsonl calls these units, which do not depend on the
  /// tokenizer; without those of which nothing was counted.
  /// Source:  Merity et al. 2016, arXiv:1609.07843, whose tokens are words and line ends
  std::vector<std::pair<std::string, double>> units() const;
  /// "1.4697 nats per token, perplexity 4.348, 2.1203 bits per byte, perplexity per word 2907"
  std::string to_string() const;
  /// The mean, its perplexity, and the units, as metrics.jsonl calls them.
  nlohmann::ordered_json json() const;
};

}  // namespace tapeformer
