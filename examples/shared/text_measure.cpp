#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/text_measure.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>

namespace tapeformer {

bool is_white_space(char c) { return c != '\0' && std::strchr(" \t\n\v\f\r", c) != nullptr; }

TextSize size_of_text(std::string_view text, bool after_white_space) {
  TextSize size{static_cast<Index>(text.size()), 0};
  for (const char c : text) {
    const bool is_space = is_white_space(c);
    if (c == '\n' || (after_white_space && !is_space)) ++size.words;
    after_white_space = is_space;
  }
  return size;
}

double bits_per_byte(double nats, const TextSize& size) {
  return size.bytes == 0 ? 0 : nats / (std::log(2.0) * static_cast<double>(size.bytes));
}

double word_perplexity(double nats, const TextSize& size) {
  return size.words == 0 ? 0 : std::exp(nats / static_cast<double>(size.words));
}

std::string text_units(double nats, const TextSize& size) {
  std::string text;
  if (size.words > 0) text += ", perplexity per word " + number_text(word_perplexity(nats, size));
  if (size.bytes > 0) text += format(", {:.4f} bits per byte", bits_per_byte(nats, size));
  return text;
}

nlohmann::ordered_json loss_json(double nats, double tokens, const TextSize& size) {
  nlohmann::ordered_json json = {{"loss", nats / tokens}, {"perplexity", std::exp(nats / tokens)}};
  if (size.words > 0) json["word_perplexity"] = word_perplexity(nats, size);
  if (size.bytes > 0) json["bits_per_byte"] = bits_per_byte(nats, size);
  return json;
}

}  // namespace tapeformer
