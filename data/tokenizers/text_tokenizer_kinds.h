#pragma once

#include <tapeformer/data/tokenizers/text_tokenizer.h>

namespace tapeformer {

/// The tokenizers that payloads of tokenizer files describe; errors call the file `name`.
/// Throws:  DataError if a payload is not of that kind
std::unique_ptr<TextTokenizer> parse_character_tokenizer(const std::string& payload, const std::string& name);
std::unique_ptr<TextTokenizer> parse_byte_pair_tokenizer(const std::string& payload, const std::string& name);
std::unique_ptr<TextTokenizer> parse_sentencepiece_tokenizer(std::string payload, const std::string& name);
std::unique_ptr<TextTokenizer> parse_tokenizer_json(std::string text, const std::string& name);

/// A tokenizer and its controls; see text_tokenizer_controls.h.
constexpr const char* kControls = "controls";
std::unique_ptr<TextTokenizer> parse_controlled_tokenizer(const std::string& payload,
                                                          const std::string& name);

/// Every n-th line of the text, n being the smallest power of two for which they take at most `limit` bytes
/// of memory. Long lines count as several, empty ones as none, and tabs end a line too.
/// Throws:  DataError for what is not UTF-8
std::vector<std::string> sentencepiece_sentences(const TextSource& text, std::size_t limit);

}  // namespace tapeformer
