#pragma once

#include <tapeformer/autograd/shape.h>

#include <nlohmann/json_fwd.hpp>

#include <string_view>

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

/// A total of nats over a text, in units that do not depend on the tokenizer. 0 where nothing was counted.
double bits_per_byte(double nats, const TextSize& size);
/// Source:  Merity et al. 2016, arXiv:1609.07843, whose tokens are words and line ends
double word_perplexity(double nats, const TextSize& size);
/// ", perplexity per word 52.3, 1.2345 bits per byte"; empty where nothing was counted.
std::string text_units(double nats, const TextSize& size);
/// The loss in nats per token, its perplexity, and these units, as metrics.jsonl calls them.
nlohmann::ordered_json loss_json(double nats, double tokens, const TextSize& size);

}  // namespace tapeformer
