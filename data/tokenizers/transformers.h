#pragma once

#include <tapeformer/data/sentence_frame.h>
#include <tapeformer/data/tokenizers/tokenizer.h>

#include <map>

namespace tapeformer {

/// Names of languages as a vocabulary has them ("fra_Latn", "fr_XX"), or without the underscores around them
/// ("fr" for "__fr__"); empty for the languages that the files name.
struct Languages {
  std::string source;  ///< of the encoder's input
  std::string target;  ///< of the decoder's output
};

/// The tokenizer of BART, mBART, M2M100, NLLB, T5 or mT5: tokenizer.json or a SentencePiece model, and the
/// other files of a transformers folder that say how sentences are cut and framed. A vocabulary file holds
/// them all unchanged. Decoding drops control tokens, and does not stop at the end.
TokenizerKind transformers_files();

/// Reads the files of a folder. Throws: DataError naming a missing or unsupported file
std::shared_ptr<const Tokenizer> load_transformers_tokenizer(const std::string& folder);

/// The tokens around sentences; `languages` take precedence over those that the files name.
/// Throws:  DataError that lists the known languages if one is missing or unknown, or if languages are given
///          for a model without them
SentenceFrame frame_of(const Tokenizer& source, const Tokenizer& target, const Languages& languages = {});

/// Names and contents of the files from which a tokenizer of this kind was read, config.json included, with
/// `languages` as the default; empty for a tokenizer of another kind.
/// Throws:  as frame_of()
std::map<std::string, std::string> transformers_files_of(const Tokenizer& tokenizer,
                                                         const Languages& languages);

}  // namespace tapeformer
