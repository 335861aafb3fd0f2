#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

namespace tapeformer {

/// A SentencePiece model file with its own ids (Llama's tokenizer.model). A text is encoded in parts that
/// end after "\n", or after 65,536 bytes without one (or a little before, between code points); only the
/// first has a space put before it. The ids are those that SentencePiece gives the whole text, except in
/// longer lines, and decode to it. A model that changes or drops white space, or has longer pieces that
/// contain "\n", encodes texts whole, which takes about 200 bytes of memory for each byte of text.
std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::string& path);
/// A SentencePiece BPE model with byte fallback and identity normalisation, trained on `text`; unknown is 0,
/// begin 1 and end 2, as in Llama's. Of a long text every 2nd, 4th, ... line is used, so that their bytes
/// and 32 more per line total at most 32 MB; lines over 4,192 bytes count as several. A text that cannot fill
/// the vocabulary gets a smaller one.
std::unique_ptr<Tokenizer> train_sentencepiece_tokenizer(const TextSource& text, Index vocabulary_size);
/// The content of its model file. Throws: DataError unless `tokenizer` is of kind "sentencepiece"
std::string sentencepiece_model(const Tokenizer& tokenizer);
TokenizerKind text_sentencepiece();

/// Every n-th line of the text, where n is the smallest power of two for which they take at most `limit`
/// bytes of memory. Long lines count as several, empty ones as none, and tabs end a line too.
/// Throws:  DataError if the text is not UTF-8
std::vector<std::string> sentencepiece_sentences(const TextSource& text, std::size_t limit);

}  // namespace tapeformer
