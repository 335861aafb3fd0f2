#pragma once

#include <doctest/doctest.h>
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

/// The ids of a text that comes in pieces, of size(place) bytes, and is encoded as far as it can be cut.
template <class Size>
std::vector<std::int32_t> ids_of_pieces(const Tokenizer& tokenizer, std::string_view text, const Size& size) {
  std::vector<std::int32_t> ids;
  std::string waiting;
  bool begun = false;
  const auto encode = [&](std::size_t bytes) {
    if (bytes == 0) return;
    const std::string_view part = std::string_view(waiting).substr(0, bytes);
    begun ? tokenizer.encode_rest(part, ids) : tokenizer.encode(part, ids);
    begun = true;
    waiting.erase(0, bytes);
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view piece = text.substr(i, size(i));
    waiting += piece;
    i += piece.size();
    encode(tokenizer.safe_cut(waiting));
    CHECK(waiting.size() < 65'536);
  }
  encode(waiting.size());
  return ids;
}

}  // namespace tapeformer
