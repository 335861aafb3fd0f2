#pragma once

#include <tapeformer/data/tokenizers/text_tokenizer.h>

#include <memory>
#include <string>

namespace tapeformer {

/// A tokenizer's file in a run folder and in a prepared one.
constexpr const char* kTokenizerFile = "tokenizer";

/// The tokenizer in a folder (a run, one that `prepare` wrote, or a Hugging Face folder) or in a file: ours,
/// tokenizer.json, or a SentencePiece model.
/// Throws:  DataError naming what is missing, or what a tokenizer.json asks for and is not supported
std::shared_ptr<const TextTokenizer> find_tokenizer(const std::string& path);

/// Whether find_tokenizer finds one in the folder. Throws: as find_tokenizer, for one that is not supported
bool has_tokenizer(const std::string& folder);

/// Writes a tokenizer beside an exported model, in the form that transformers reads: bpe as vocab.json and
/// merges.txt, bytes likewise without merges, sentencepiece as tokenizer.model, characters as tokenizer.json
/// (and our own file, which alone brings them back here). Returns the names of the files.
/// Throws:  CheckpointError if a file cannot be written
std::string export_tokenizer(const TextTokenizer& tokenizer, const std::string& folder);

}  // namespace tapeformer
