#pragma once

#include <tapeformer/data/sentence_frame.h>
#include <tapeformer/data/tokenizers/tokenizer.h>

#include <map>

namespace tapeformer {

/// Names of languages as a vocabulary has them ("fra_Latn", "fr_XX"), or without underscores around them
/// ("fr" for "__fr__"); empty for those that the files name.
struct Languages {
  std::string source;  ///< of what the encoder reads
  std::string target;  ///< of what the decoder writes
};

/// The tokenizer of BART, mBART, M2M100, NLLB, T5 or mT5: tokenizer.json or a SentencePiece model, and the
/// other files in a folder of transformers that say how sentences are cut and framed. A vocabulary file holds
/// them all unchanged.
TokenizerKind transformers_files();

/// Reads the files of a folder. Throws: DataError naming the file that is missing or not supported
std::shared_ptr<const Tokenizer> load_transformers_tokenizer(const std::string& folder);

/// The tokens around sentences; `languages` take precedence over those that the files name.
/// Throws:  DataError that lists the languages there are if one is missing or unknown, or if they are given
///          for a model without languages
SentenceFrame frame_of(const Tokenizer& source, const Tokenizer& target, const Languages& languages = {});

/// Names and contents of the files that a tokenizer of this kind was read from, config.json included, with
/// these languages as the default; empty for a tokenizer of another kind.
/// Throws:  as frame_of()
std::map<std::string, std::string> transformers_files_of(const Tokenizer& tokenizer,
                                                         const Languages& languages);

}  // namespace tapeformer
