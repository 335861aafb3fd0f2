#pragma once

#include <tapeformer/data/tokenizers/byte_pair_merges.h>

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

// The stages of a tokenizer.json, in the order in which a text passes them; for sources only. Each is made
// from its part of the file, and throws UnsupportedPart for what it cannot do as the tokenizers package does.
namespace tapeformer::tokenizer_json {

using Json = nlohmann::json;

/// A part of a file that is not supported: "a normalizer of type Nmt".
struct UnsupportedPart {
  std::string what;
};

/// The type of a part; "none" for null.
std::string type_of(const Json& part);

/// Valid UTF-8 to valid UTF-8.
using Normalizer = std::function<std::string(const std::string& text)>;
Normalizer make_normalizer(const Json& part);

/// A part of a text, valid UTF-8.
struct Piece {
  std::string text;
  bool begins_text = false;
};
/// Divides pieces further, and may change them.
using Splitter = std::function<void(std::vector<Piece>& pieces)>;
Splitter make_splitter(const Json& part);

using Vocabulary = std::unordered_map<std::string, std::int32_t>;

/// From one piece to ids: merges of characters, the earliest in the file first.
class BytePairModel {
 public:
  explicit BytePairModel(const Json& part);

  void encode(const std::string& piece, std::vector<std::int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  std::int32_t id_of(const std::string& token) const;
  std::vector<std::int32_t> characters_of(const std::string& piece) const;

  const bool ignores_merges_, fuses_unknown_;
  Vocabulary vocabulary_;
  std::optional<std::int32_t> unknown_;
  std::vector<std::int32_t> bytes_;  // the ids of "<0x00>" to "<0xFF>", or none
  BytePairMerges merges_{{}};
};

/// The text that a token adds, as its first token or as a later one. May be a part of a character.
using Decoder = std::function<std::string(const std::string& token, bool is_first)>;
Decoder make_decoder(const Json& part);

/// The parts of `text` that `pattern` matches, and those between them, in order and never empty.
struct Match {
  std::string_view text;
  bool is_match;
};
using Matcher = std::function<std::vector<Match>(std::string_view text)>;
/// A regular expression of the kind that tokenizer.json files have, by PCRE2.
/// Throws:  Error if it is none; when it runs, DataError if it takes too long
Matcher make_regex(const std::string& pattern);
/// `text` with `content` in the place of every match.
std::string replaced(std::string_view text, const Matcher& matches, const std::string& content);
/// From {"String": text} or {"Regex": pattern}.
Matcher make_matcher(const Json& pattern);

}  // namespace tapeformer::tokenizer_json
