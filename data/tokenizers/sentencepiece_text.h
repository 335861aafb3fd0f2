#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

namespace tapeformer {

/// A SentencePiece model file with its own ids (Llama's tokenizer.model). A text is encoded in parts that
/// end after "\n", or after 65,536 bytes without one (or a little before, between code points); only before
/// the first is a space put. The ids are those that SentencePiece gives the whole text, except in lines of
/// more bytes, and decode to the text. A model that changes or drops white space, or has longer pieces with
/// "\n" in them, encodes texts whole, which takes about 200 bytes of memory for each byte of text.
std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::string& path);
/// A SentencePiece BPE model with byte fallback and identity normalisation, trained on `text`; unknown is 0,
/// begin 1 and end 2, as in Llama's. Of a long text only one line in 2, 4, ... is used, so that these lines'
/// bytes and 32 more per line total at most 32 MB; lines over 4,192 bytes count as several. A text that
/// cannot fill the vocabulary gets a smaller one.
std::unique_ptr<Tokenizer> train_sentencepiece_tokenizer(const TextSource& text, Index vocabulary_size);
/// The content of a tokenizer's model file. Throws: DataError unless it is of kind "sentencepiece"
std::string sentencepiece_model(const Tokenizer& tokenizer);
TokenizerKind text_sentencepiece();

/// Every n-th line of the text, where n is the smallest power of two for which these lines take at most
/// `limit` bytes of memory. Long lines count as several, empty ones not at all, and a tab ends a line too.
/// Throws:  DataError if the text is not UTF-8
std::vector<std::string> sentencepiece_sentences(const TextSource& text, std::size_t limit);

}  // namespace tapeformer
