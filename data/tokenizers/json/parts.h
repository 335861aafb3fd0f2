#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// The stages of a tokenizer.json, in the order in which a text passes them; for sources only. Each is made
// from its part of the file; this throws UnsupportedPart if it would differ from the tokenizers package.
namespace tapeformer::tokenizer_json {

using Json = nlohmann::json;

/// The exception for a part of a file that is not supported: "a normalizer of type Nmt".
struct UnsupportedPart {
  std::string what;
};

/// Unicode's White_Space.
bool is_space(char32_t code_point);

/// The type of a part; "none" for null.
std::string type_of(const Json& part);

/// Maps valid UTF-8 to valid UTF-8.
using Normalizer = std::function<std::string(const std::string& text)>;
Normalizer make_normalizer(const Json& part);
/// The normaliser of SentencePiece's models; `map` is the table of replacements, in base64.
Normalizer make_precompiled_normalizer(const std::string& map);

/// A part of a text, valid UTF-8.
struct Piece {
  std::string text;
  bool begins_text = false;
};
/// Splits pieces further, and may change them.
using Splitter = std::function<void(std::vector<Piece>& pieces)>;
Splitter make_splitter(const Json& part);

/// Maps a piece to ids.
class Model {
 public:
  using Vocabulary = std::unordered_map<std::string, std::int32_t>;
  virtual ~Model() = default;
  /// Throws:  DataError where a text cannot be encoded
  virtual void encode(const std::string& piece, std::vector<std::int32_t>& ids) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  /// Makes append_bytes() use the tokens "<0x0A>" and so on.
  void fall_back_to_bytes();
  /// Appends the ids of the bytes of `text`; if a byte lacks a token, appends nothing and returns false.
  bool append_bytes(std::string_view text, std::vector<std::int32_t>& ids) const;
  Vocabulary vocabulary_;

 private:
  std::vector<std::int32_t> bytes_;  // ids by byte, -1 for none
};
std::unique_ptr<Model> make_model(const Json& part);
std::unique_ptr<Model> make_byte_pair_model(const Json& part);

/// Returns the text that a token adds, as the first token or a later one; perhaps a part of a character.
using Decoder = std::function<std::string(const std::string& token, bool is_first)>;
Decoder make_decoder(const Json& part);

/// A part of a text that a pattern matches, or a part between matches, which is never empty.
struct Match {
  std::string_view text;
  bool is_match;
};
/// Returns the parts of `text` in order.
using Matcher = std::function<std::vector<Match>(std::string_view text)>;
/// The characters of words to the tokenizers package itself, whose patterns are Rust's; for use within a set.
constexpr const char* kRustWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d})";
/// A regular expression of the kind that tokenizer.json files have, by PCRE2.
/// Throws:  UnsupportedPart if it is malformed or has another meaning in PCRE2; when it runs, DataError if it
///          takes too long
Matcher make_regex(const std::string& pattern);
/// `text` with every match replaced by `content`.
std::string replaced(std::string_view text, const Matcher& matches, const std::string& content);
/// From {"String": text} or {"Regex": pattern}.
Matcher make_matcher(const Json& pattern);

}  // namespace tapeformer::tokenizer_json
