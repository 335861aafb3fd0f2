#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

// Texts from values: messages, reports, tables.
namespace tapeformer {

/// A value of format(): a whole number, a number, or text, which is not copied.
class FormatValue {
 public:
  template <class Integer, class = std::enable_if_t<std::is_integral_v<Integer> && sizeof(Integer) != 1>>
  FormatValue(Integer x) : value_(Widest<Integer>{x}) {}
  FormatValue(double x) : value_(x) {}
  FormatValue(bool x) : value_(x ? "true" : "false") {}
  FormatValue(const char* text) : value_(text) {}
  FormatValue(std::string_view text) : value_(text) {}
  FormatValue(const std::string& text) : value_(text) {}

  /// `specification` is empty or begins with a colon.
  void append_to(std::string& text, std::string_view specification) const;

 private:
  template <class Integer>
  using Widest = std::conditional_t<std::is_signed_v<Integer>, long long, unsigned long long>;
  std::variant<long long, unsigned long long, double, std::string_view> value_;
};

std::string format_values(std::string_view pattern, std::initializer_list<FormatValue> values);

/// Puts each value in the place of a {}: format("{} of {}, {:.1f} %", 3, "four", 75.0) is
/// "3 of four, 75.0 %".
/// After a colon come the flags, width, precision and letter of printf, as in {:-9} or {:02x}; without them
/// numbers are written as by std::ostream.
template <class... Values>
std::string format(std::string_view pattern, const Values&... values) {
  return format_values(pattern, {values...});
}

/// joined(list, ", ") is "3, 4, 5"; with `text`, a function or a pointer to a member, its results are joined.
template <class List, class Text>
std::string joined(const List& list, std::string_view separator, const Text& text) {
  std::string all;
  for (const auto& element : list) {
    FormatValue(std::invoke(text, element)).append_to(all, {});
    all += separator;
  }
  if (!all.empty()) all.resize(all.size() - separator.size());
  return all;
}
template <class List>
std::string joined(const List& list, std::string_view separator) {
  return joined(
      list, separator, [](const auto& element) -> const auto& { return element; });
}

/// The names as alternatives: "none, head or element".
template <class Names>
std::string alternatives(const Names& names) {
  std::string text;
  std::size_t left = std::size(names);
  for (const auto& name : names)
    text.append(text.empty() ? "" : left == 1 ? " or " : ", ").append(name), --left;
  return text;
}

/// "1 token", "2 tokens"; with `several` for a plural that takes more than an s, "2 batches".
template <class Integer>
std::string number_of(Integer count, const std::string& one, const std::string& several = {}) {
  return format("{} {}", count, count == 1 ? one : several.empty() ? one + "s" : several);
}

}  // namespace tapeformer
