#pragma once

#include <tapeformer/data/tokenizers/text_tokenizer.h>

namespace tapeformer {

/// What the payloads of the tokenizer files stand for; `name` is the file's, for errors.
/// Throws:  DataError if a payload is not of that kind
std::unique_ptr<TextTokenizer> parse_character_tokenizer(const std::string& payload, const std::string& name);
std::unique_ptr<TextTokenizer> parse_byte_pair_tokenizer(const std::string& payload, const std::string& name);
std::unique_ptr<TextTokenizer> parse_sentencepiece_tokenizer(std::string payload, const std::string& name);

/// Every step-th of the lines of the text, and of the parts of long ones; the step is the smallest power of
/// two with which they take at most `limit` bytes of memory at a time. Empty ones do not count, and tabs end
/// one, too.
/// Throws:  DataError for what is not UTF-8
std::vector<std::string> sentencepiece_sentences(const TextSource& text, std::size_t limit);

}  // namespace tapeformer
