#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

#include <nlohmann/json.hpp>

#include <memory>
#include <string>

namespace tapeformer {

/// A tokenizer from its own file.
struct PlainTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  /// Tokens that must be found in every text and that `tokenizer` does not find, as in tokenizer.json.
  nlohmann::json added = nlohmann::json::array();
};

/// The tokens that the other files of a Hugging Face folder add to those of its tokenizer's own file.
/// Throws:  DataError, CheckpointError naming the file
nlohmann::json tokens_added_in(const std::string& folder);

/// The tokenizer with its added tokens, or as it is if these are only its own control tokens.
/// Throws:  DataError naming `name`
std::shared_ptr<const Tokenizer> with_added_tokens(PlainTokenizer plain, const std::string& name);

/// The tokenizer with its added tokens and the folder's settings as in transformers: whether texts begin with
/// a token, and the tokens that end a generated text, by generation_config.json, else config.json, else
/// tokenizer_config.json.
/// Throws:  DataError, CheckpointError naming the file, or a setting that the tokenizer does not support
std::shared_ptr<const Tokenizer> with_folder_controls(PlainTokenizer plain, const std::string& folder);

}  // namespace tapeformer
