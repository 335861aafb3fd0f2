#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

#include <memory>
#include <string>

namespace tapeformer {

/// A tokenizer's file in a run folder and in a prepared one.
constexpr const char* kTokenizerFile = "tokenizer";

/// Loads the tokenizer in a folder (of a run, of `prepare`, or a Hugging Face folder) or in a file (one that
/// Tapeformer wrote, a tokenizer.json, or a SentencePiece model).
/// Throws:  DataError, CheckpointError naming what is missing, damaged or not supported
std::shared_ptr<const Tokenizer> find_tokenizer(const std::string& path);

/// The tokenizer.model in a Hugging Face folder with the folder's controls, even if there is a
/// tokenizer.json; nullptr if there is none. Throws: as find_tokenizer
std::shared_ptr<const Tokenizer> find_sentencepiece(const std::string& folder);

/// True if find_tokenizer finds one in the folder. Throws: as find_tokenizer, if it is not supported
bool has_tokenizer(const std::string& folder);

/// The name of the tokenizer's mask token, "[MASK]" or "<mask>"; "" if it has none.
std::string mask_name(const Tokenizer& tokenizer);

/// Writes a tokenizer next to an exported model, in the form that transformers reads: bpe as vocab.json and
/// merges.txt, bytes likewise but without merges, sentencepiece as tokenizer.model, tokenizer_json as it is,
/// characters as tokenizer.json and as a file that this program reads. Returns the names of the files.
/// Throws:  CheckpointError if a file cannot be written
std::string export_tokenizer(const Tokenizer& tokenizer, const std::string& folder);

}  // namespace tapeformer
