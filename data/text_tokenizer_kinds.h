#pragma once

#include <tapeformer/data/text_tokenizer.h>

namespace tapeformer {

/// What the payloads of the tokenizer files stand for; `name` is the file's, for errors.
/// Throws:  DataError if a payload is not of that kind
std::unique_ptr<TextTokenizer> parse_character_tokenizer(const std::string& payload, const std::string& name);
std::unique_ptr<TextTokenizer> parse_byte_pair_tokenizer(const std::string& payload, const std::string& name);
std::unique_ptr<TextTokenizer> parse_sentencepiece_tokenizer(std::string payload, const std::string& name);

}  // namespace tapeformer
