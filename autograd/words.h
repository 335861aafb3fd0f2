#pragma once

#include <string>

namespace tapeformer {

/// "1 token", "2 tokens"; with `several` for a plural that takes more than an s, "2 batches".
template <class Integer>
std::string number_of(Integer count, const std::string& one, const std::string& several = {}) {
  const std::string word = count == 1 ? one : several.empty() ? one + "s" : several;
  return std::to_string(count) + " " + word;
}

}  // namespace tapeformer
