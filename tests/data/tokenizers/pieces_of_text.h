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

}  // namespace tapeformer
