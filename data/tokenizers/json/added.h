#pragma once

#include <tapeformer/data/tokenizers/json/parts.h>

namespace tapeformer::tokenizer_json {

/// A token that is found in a text before any other step.
struct AddedToken {
  std::string content;
  std::string text;  ///< the text to find and to decode to; normalised if `normalized`
  std::int32_t id = 0;
  bool is_special = false;  ///< decoded to nothing
  bool single_word = false, lstrip = false,
       rstrip = false;      ///< only as a word of its own; takes the white space to its left, or right
  bool normalized = false;  ///< searched for in the normalised text
};

/// The added tokens of a file, and the parts of a text between them.
class AddedTokens {
 public:
  AddedTokens(const Json& list, const Model::Vocabulary& vocabulary, Normalizer normalize);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  /// Appends the ids of added tokens, and calls rest(text, begins) for the normalised parts between them, in
  /// order; `begins` is true for a part at the start of the text.
  void encode(std::string_view text, std::vector<std::int32_t>& ids,
              const std::function<void(const std::string& text, bool begins)>& rest) const;

 private:
  struct Part {
    std::string_view text;
    const AddedToken* token;  // nullptr for text between tokens
  };
  std::vector<Part> divided(std::string_view text, const std::vector<std::size_t>& wanted) const;

  std::vector<AddedToken> tokens_;
  std::vector<std::size_t> raw_, normalized_;  // of tokens_, the longest first
  Normalizer normalize_;
};

}  // namespace tapeformer::tokenizer_json
