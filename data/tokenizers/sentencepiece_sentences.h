#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

namespace tapeformer {

/// SentencePiece's "bpe" or "unigram" for sentences.
TokenizerKind sentence_pieces(const std::string& model_type);

/// Reads a model file of SentencePiece's own trainer. Its pieces, in their order, follow the special ids
/// 0 to 3, whatever ids its own special pieces have.
/// Throws:  DataError if the file is missing or not a model
std::unique_ptr<Tokenizer> load_sentencepiece_model(const std::string& path);

}  // namespace tapeformer
