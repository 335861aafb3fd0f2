#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

#include <map>
#include <utility>

namespace tapeformer {

/// Unigram pieces of SentencePiece with MarianMT's ids: end is 0, unknown 1, and the last id is padding, from
/// which a decoder starts. As in transformers, the names of padding, unknown and end are tokens in every
/// text, and ">>fr<<" is one token at the start of a text. Decoding drops unknown tokens, and white space at
/// both ends.
TokenizerKind marian_pieces();

/// The tokenizers of source and target in a folder of MarianMT: source.spm and target.spm cut texts, and
/// vocab.json has the ids, or for targets target_vocab.json if tokenizer_config.json sets separate_vocabs.
/// Decoders start from `begin`, or from padding. Texts stay as they are: no punctuation is normalised.
/// Throws:  DataError, CheckpointError naming the file, and unsupported settings of tokenizer_config.json
std::pair<std::shared_ptr<const Tokenizer>, std::shared_ptr<const Tokenizer>> load_marian_tokenizers(
    const std::string& folder, std::optional<std::int32_t> begin = {});

/// Names and contents of the files that hold the tokenizers for transformers, with the same ids.
/// Throws:  DataError unless both are of kind bpe, unigram or marian
std::map<std::string, std::string> marian_files(const Tokenizer& source, const Tokenizer& target);

/// The tokenizers of source and target for a model of Marian, whose vocabularies are SentencePiece models
/// (.spm), or files of ids (vocab.yml) in a folder with source.spm and target.spm, which cut texts. The last
/// token is padding, which Marian lacks.
/// Throws:  DataError, CheckpointError naming the file
std::pair<std::shared_ptr<const Tokenizer>, std::shared_ptr<const Tokenizer>> load_marian_vocabularies(
    const std::string& source, const std::string& target);

/// The files of vocabularies for Marian.
struct MarianVocabularyFiles {
  std::vector<std::string> names;            ///< of source and target: the models, or .yml if ids differ
  std::map<std::string, std::string> files;  ///< names and contents of all files
};
/// Throws:  DataError unless the tokenizers are of kind marian with padding as the last token
MarianVocabularyFiles marian_vocabulary_files(const Tokenizer& source, const Tokenizer& target);

}  // namespace tapeformer
