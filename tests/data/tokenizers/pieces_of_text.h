#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

#include <string>
#include <vector>

namespace tapeformer {

/// A text that comes in these pieces, or these sentences.
inline TextSource text_in(std::vector<std::string> pieces) {
  return [pieces = std::move(pieces)](const auto& reader) {
    for (const std::string& piece : pieces) reader(piece);
  };
}

/// A text in pieces of `size` bytes.
inline TextSource in_pieces(const std::string& text, std::size_t size) {
  return [=](const auto& reader) {
    for (std::size_t i = 0; i < text.size(); i += size) reader(std::string_view(text).substr(i, size));
  };
}

}  // namespace tapeformer
