#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

#include <utility>

namespace tapeformer {

/// Unigram pieces of SentencePiece with ids as MarianMT has them: the end is 0, unknown 1, and the last one
/// is padding, from which a decoder starts. Padding, unknown and end are found by their names in every text,
/// and ">>fr<<" is one token at its start, as in transformers. Decoding leaves out what is unknown, and
/// white space at both ends.
TokenizerKind marian_pieces();

/// The tokenizers of source and target in a folder of MarianMT: source.spm and target.spm cut texts;
/// vocab.json, and target_vocab.json where tokenizer_config.json says separate_vocabs, have the ids. Decoders
/// start from `begin`, or from padding. Texts stay as they are: no punctuation is normalised.
/// Throws:  DataError, CheckpointError naming the file, and what of tokenizer_config.json is not supported
std::pair<std::shared_ptr<const Tokenizer>, std::shared_ptr<const Tokenizer>> load_marian_tokenizers(
    const std::string& folder, std::optional<std::int32_t> begin = {});

/// Names and contents of the files for transformers that hold the tokenizers, with the same ids.
/// Throws:  DataError unless they are of the kinds bpe, unigram or marian
std::vector<std::pair<std::string, std::string>> marian_files(const Tokenizer& source,
                                                              const Tokenizer& target);

}  // namespace tapeformer
