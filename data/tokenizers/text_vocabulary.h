#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

#include <string>

namespace tapeformer {

/// True for a name that ends as vocabularies of text do: .txt or .vocab.
bool is_text_vocabulary(const std::string& path);

/// A tokenizer of the kind `space` of a vocabulary in text, with its pieces in the order of their ids and
/// without special ones ("<s>", "</s>", "<pad>", "<unk>"). It is one of
///   - fairseq's dict.txt: lines `piece count`, from which our ids are fairseq's
///   - a piece a line, as Marian's plain vocabularies are
/// Throws:  DataError naming the file, the line and what is wrong
std::unique_ptr<Tokenizer> load_text_vocabulary(const std::string& path);

}  // namespace tapeformer
