#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

#include <string>
#include <vector>

namespace tapeformer {

/// True for a name with the ending of a text vocabulary: .yml, .yaml, .txt or .vocab.
bool is_text_vocabulary(const std::string& path);

/// The pieces of a text vocabulary, in the order of their ids and without special ones ("<s>", "</s>",
/// "<pad>", "<unk>"). The file is one of
///   - Marian's vocab.yml: a YAML mapping `piece: id`, ids from 0 without gaps
///   - fairseq's dict.txt: lines `piece count`; the pieces get fairseq's ids
///   - one piece per line, as in Marian's plain vocabularies
/// Throws:  DataError naming the file, the line and what is wrong
std::vector<std::string> read_text_vocabulary(const std::string& path);

/// All pieces of Marian's vocab.yml by their ids. Throws: as read_text_vocabulary
std::vector<std::string> read_yaml_vocabulary(const std::string& path);

/// A tokenizer of kind `space` with the pieces of a text vocabulary.
/// Throws:  as read_text_vocabulary; DataError if a piece comes twice
std::unique_ptr<Tokenizer> load_text_vocabulary(const std::string& path);

}  // namespace tapeformer
