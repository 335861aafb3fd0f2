#include <tapeformer/autograd/config/json.h>
#include <tapeformer/examples/report/compare.h>
#include <tapeformer/examples/shared/progress.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

constexpr std::size_t kLongestCell = 40;

/// All options by name: the model's, which may differ from the given ones, and the run's.
Json options_in(const RunRecord& run) {
  Json options = Json::object();
  for (const auto& [name, value] : run.config.items())
    if (value.is_primitive() && name.find("fingerprint") == std::string::npos) options[name] = value;
  const Json training = run.config.value("training", Json::object());
  for (const auto& [name, value] : training.items())
    if (!options.contains(name) || name == "context") options[name] = value;  // tokens of the run's rows
  return options;
}

Json results_of(const RunRecord& run) {
  const auto chosen = [&](const char* field, const auto& choose) {
    std::vector<double> numbers;
    for (const Json& line : run.metrics)
      if (const double number = number_in(line, field); std::isfinite(number)) numbers.push_back(number);
    return numbers.empty() ? Json() : Json(choose(numbers));
  };
  const auto last = [](const auto& numbers) { return numbers.back(); };
  const auto greatest = [](const auto& numbers) { return *std::max_element(numbers.begin(), numbers.end()); };
  const auto median = [](auto& numbers) {
    std::sort(numbers.begin(), numbers.end());
    return numbers[numbers.size() / 2];
  };
  return {{"best_validation_loss", number_or_null(best_loss_of(run))},
          {"final_training_loss", chosen("train_loss", last)},
          {"bleu", number_or_null(number_in(run.evaluation, "bleu"))},
          {"bleu_part", run.evaluation.value("part", Json())},
          {"tokens_per_second", chosen("tokens_per_second", median)},
          {"seconds", chosen("elapsed", greatest)},
          {"last_step", chosen("step", greatest)},
          {"parameters", number_or_null(number_in(run.facts.value("model", Json::object()), "parameters"))}};
}

/// True for the bytes of a character in UTF-8 after its first.
bool goes_on(char c) { return (c & 0xc0) == 0x80; }

/// The number of characters of a text in UTF-8.
std::size_t width_of(const std::string& text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), goes_on));
}

std::string cell_text(const std::string& name, const Json& value) {
  if (value.is_null()) return "-";
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (value.is_number()) {
    const bool is_count = name == "tokens_per_second" || name == "parameters";
    const bool is_loss = name == "best_validation_loss" || name == "final_training_loss";
    const double number = value.get<double>();
    text = name == "seconds" ? duration_text(number)
           : is_count        ? count_text(number)
                             : format(is_loss          ? "{:.4f}"
                                      : name == "bleu" ? "{:.2f}"
                                                       : "{:.10g}",
                               number);
  }
  if (text.empty()) text = "\"\"";
  if (width_of(text) <= kLongestCell) return text;
  std::size_t begin = 0;  // its end says more of a path
  for (std::size_t excess = width_of(text) - kLongestCell + 3; excess > 0 || goes_on(text[begin]); ++begin)
    excess -= goes_on(text[begin]) ? 0 : 1;
  return "..." + text.substr(begin);
}

using Column = std::vector<std::string>;

std::size_t widest(const Column& column) {
  std::size_t width = 0;
  for (const std::string& cell : column) width = std::max(width, width_of(cell));
  return width;
}

}  // namespace

Json comparison_json(const std::vector<RunRecord>& runs) {
  std::vector<Json> all;
  for (const RunRecord& run : runs) all.push_back(options_in(run));
  std::vector<std::string> names;
  for (const Json& options : all)
    for (const auto& [name, value] : options.items())
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  Json comparison = Json::array();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Json differing = Json::object();
    for (const std::string& name : names) {
      const auto value_in = [&name](const Json& options) { return options.value(name, Json()); };
      const auto differs = [&](const Json& options) { return value_in(options) != value_in(all.front()); };
      if (std::any_of(all.begin(), all.end(), differs)) differing[name] = value_in(all[i]);
    }
    comparison.push_back({{"run", runs[i].name}, {"results", results_of(runs[i])}, {"options", differing}});
  }
  return comparison;
}

std::string comparison_text(const Json& comparison, int width) {
  Column labels = {"run"};
  std::vector<Column> columns;
  for (const Json& run : comparison) {
    Column column = {cell_text("run", run.at("run"))};
    for (const char* part : {"results", "options"}) {
      for (const auto& [name, value] : run.at(part).items()) {
        const auto has_value = [&, key = name](const Json& other) {
          return !other.at(part).at(key).is_null();
        };
        if (std::none_of(comparison.begin(), comparison.end(), has_value)) continue;
        if (columns.empty()) labels.push_back(name);
        column.push_back(cell_text(name, value));
      }
    }
    columns.push_back(std::move(column));
  }
  for (std::string& label : labels) std::replace(label.begin(), label.end(), '_', ' ');
  const auto padded = [](const std::string& text, std::size_t columns_wide) {
    return text + std::string(columns_wide - width_of(text), ' ');
  };
  std::string text;
  const std::size_t label_width = widest(labels);
  for (std::size_t begin = 0; begin < columns.size();) {
    std::size_t end = begin, used = label_width;
    do used += 2 + widest(columns[end++]);
    while (end < columns.size() &&
           (width <= 0 || used + 2 + widest(columns[end]) <= static_cast<std::size_t>(width)));
    if (begin > 0) text += "\n";
    for (std::size_t row = 0; row < labels.size(); ++row) {
      std::string line = padded(labels[row], label_width);
      for (std::size_t i = begin; i < end; ++i) line += "  " + padded(columns[i][row], widest(columns[i]));
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    begin = end;
  }
  return text;
}

}  // namespace tapeformer
