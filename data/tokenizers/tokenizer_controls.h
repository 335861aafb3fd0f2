#pragma once

#include <tapeformer/data/tokenizers/json/added.h>
#include <tapeformer/data/tokenizers/tokenizer.h>

namespace tapeformer {

/// The begin, end and added tokens that are named in other files than a tokenizer's own.
struct TokenizerControls {
  /// The token that documents begin with.
  std::optional<std::int32_t> begin;
  std::string begin_name;  ///< the name of `begin` in the files; "" for the tokenizer's own begin token
  /// The tokens that end a text; the first one in the vocabulary ends documents.
  std::vector<std::int32_t> ends;
  /// Tokens that are found in every text, listed as in tokenizer.json. They may enlarge the vocabulary.
  nlohmann::json added = nlohmann::json::array();
  /// Whether text after an added token begins like a new text, with a space if the kind puts one there.
  bool restarts_after_added = true;
  std::string restart_name = "restarts_after_added";  ///< the name of that field; older files keep theirs

  /// The controls that `tokenizer` has by itself.
  static TokenizerControls of(const Tokenizer& tokenizer);
};

/// `plain` with these controls, or `plain` itself if it already has them. Errors call the source `name`.
/// Throws:  DataError for a malformed entry of `added`, or a begin token outside the vocabulary
std::unique_ptr<Tokenizer> with_controls(std::unique_ptr<Tokenizer> plain, const TokenizerControls& controls,
                                         const std::string& name);

/// The kind by which files hold a tokenizer with controls.
TokenizerKind controlled_text();

/// The tokens that with_controls() added; none for other tokenizers.
const std::vector<tokenizer_json::AddedToken>& added_tokens(const Tokenizer& tokenizer);
/// Whether text after an added token begins like a new text; false for tokenizers without such controls.
bool restarts_after_added(const Tokenizer& tokenizer);

}  // namespace tapeformer
