#include <tapeformer/autograd/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <stdexcept>

namespace tapeformer {

void FormatValue::append_to(std::string& text, std::string_view specification) const {
  const auto* const words = std::get_if<std::string_view>(&value_);
  if (words && specification.empty()) {
    text += *words;
    return;
  }
  std::string pattern(specification.empty() ? ":" : specification);
  pattern.front() = '%';
  char type = "dugs"[value_.index()];
  if (std::isalpha(static_cast<unsigned char>(pattern.back()))) {
    type = pattern.back();
    pattern.pop_back();
  }
  if (value_.index() < 2) pattern += "ll";
  pattern += type;
  const auto append = [&text, &pattern](auto value) {
    const int length = std::snprintf(nullptr, 0, pattern.c_str(), value);
    std::string printed(static_cast<std::size_t>(length), '\0');
    std::snprintf(printed.data(), printed.size() + 1, pattern.c_str(), value);
    text += printed;
  };
  std::visit(
      [&append](auto value) {
        if constexpr (std::is_arithmetic_v<decltype(value)>) {
          append(value);
        } else {
          append(std::string(value).c_str());
        }
      },
      value_);
}

std::string format_values(std::string_view pattern, std::initializer_list<FormatValue> values) {
  std::string text;
  for (const FormatValue& value : values) {
    const std::size_t open = std::min(pattern.find("{}"), pattern.find("{:")),
                      close = pattern.find('}', open);
    if (close == std::string_view::npos) throw std::logic_error("[format] more values than {} in: " + text);
    text += pattern.substr(0, open);
    value.append_to(text, pattern.substr(open + 1, close - open - 1));
    pattern.remove_prefix(close + 1);
  }
  return text.append(pattern);
}

}  // namespace tapeformer
