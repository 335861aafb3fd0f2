#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer::tokenizer_json {

/// The map of a normaliser of SentencePiece: a double-array trie of the replaced texts, and the replacements,
/// each ended by a NUL.
/// Source:  Darts-clone's units, as SentencePiece writes them
class CharactersMap {
 public:
  /// Throws:  UnsupportedPart if any text could lead out of the map
  explicit CharactersMap(std::string_view bytes);

  /// The replacement of the shortest beginning of `text` that has one.
  std::optional<std::string> find(std::string_view text) const;

 private:
  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace tapeformer::tokenizer_json
