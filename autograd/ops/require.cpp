#include <tapeformer/autograd/ops/require.h>

namespace tapeformer {

std::string Named::text() const {
  if (const auto* const all = std::get_if<std::pair<const Named*, std::size_t>>(&value_)) {
    const auto [first, count] = *all;
    return joined(std::vector<Named>(first, first + count), ", ", &Named::text);
  }
  if (const auto* const x = std::get_if<const Tensor*>(&value_))
    return format("{}={}", name_, (*x)->describe());
  if (const auto* const x = std::get_if<const Shape*>(&value_)) return format("{}={}", name_, (*x)->text());
  return format("{}={}", name_, std::get<FormatValue>(value_));
}

std::string refusal(const char* op, const char* rule, const std::string& got, const char* remedy) {
  const std::string text = format("[{}] {}; got {}", op, rule, got);
  return remedy == nullptr ? text : text + "; try " + remedy;
}

}  // namespace tapeformer
