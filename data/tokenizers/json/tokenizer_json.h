#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

#include <nlohmann/json_fwd.hpp>

namespace tapeformer {

/// A tokenizer.json of Hugging Face's tokenizers: BPE, Unigram or WordPiece with the usual normalisers,
/// pre-tokenizers, decoders and added tokens, which are found in every text. The ids are those of the
/// package's encode(text, add_special_tokens=False). begin() and end() are the tokens of its template; else
/// end() is "<|endoftext|>" or "<|end_of_text|>". A text is encoded as a whole. Errors call the file `name`.
/// Throws:  DataError if it is damaged, or naming the part that is not supported
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string text, const std::string& name);
/// As parse_tokenizer_json(), from the content of a file; serialize() writes `text`.
std::unique_ptr<Tokenizer> make_tokenizer_json(const nlohmann::json& file, std::string text,
                                               const std::string& name);
/// The kind of tokenizers that are read from tokenizer.json; vocabulary files hold it unchanged.
TokenizerKind text_tokenizer_json();

}  // namespace tapeformer
