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

std::vector<std::pair<std::string, double>> TextLoss::units() const {
  std::vector<std::pair<std::string, double>> units;
  const auto bytes = static_cast<double>(text.bytes), words = static_cast<double>(text.words);
  if (bytes > 0) units.emplace_back("bits_per_byte", nats / (std::log(2.0) * bytes));
  if (words > 0) units.emplace_back("word_perplexity", std::exp(nats / words));
  return units;
}

std::string TextLoss::to_string() const {
  std::string said = format("{:.4f} nats per token, perplexity {}", mean(), number_text(std::exp(mean())));
  for (const auto& [unit, value] : units())
    said += unit == "bits_per_byte" ? format(", {:.4f} bits per byte", value)
                                    : ", perplexity per word " + number_text(value);
  return said;
}

nlohmann::ordered_json TextLoss::json() const {
  nlohmann::ordered_json json = {{"loss", mean()}, {"perplexity", std::exp(mean())}};
  for (const auto& [unit, value] : units()) json[unit] = value;
  return json;
}

}  // namespace tapeformer
