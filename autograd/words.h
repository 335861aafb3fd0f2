#pragma once

#include <iterator>
#include <string>

// Words for messages.
namespace tapeformer {

/// "1 token", "2 tokens"; with `several` for a plural that takes more than an s, "2 batches".
template <class Integer>
std::string number_of(Integer count, const std::string& one, const std::string& several = {}) {
  const std::string word = count == 1 ? one : several.empty() ? one + "s" : several;
  return std::to_string(count) + " " + word;
}

/// "none, head or element".
template <class Names>
std::string alternatives(const Names& names) {
  std::string text;
  std::size_t left = std::size(names);
  for (const auto& name : names)
    text.append(text.empty() ? "" : left == 1 ? " or " : ", ").append(name), --left;
  return text;
}

}  // namespace tapeformer
