#pragma once

#include <tapeformer/data/text_corpus.h>
#include <tapeformer/data/token_file.h>
#include <tapeformer/data/tokenizers/text_tokenizer.h>

#include <functional>
#include <memory>
#include <string>

namespace tapeformer {

/// A folder with the files `tokenizer`, `train.tokens` and `validation.tokens`.
struct PreparedTokens {
  std::shared_ptr<const TextTokenizer> tokenizer;
  TokenFile train, validation;

  /// Throws: DataError if a file is missing or damaged, or they do not belong together
  static PreparedTokens open(const std::string& folder);
};

/// Told the bytes of text that are done, of how many. What it throws ends the work, and nothing is left.
using PrepareProgress = std::function<void(Index done, Index total)>;

/// Encodes both parts of a corpus into a new folder, which appears when all is done. Takes constant memory.
/// Where the tokenizer has a begin or an end token and `separate` is true, they stand before and after every
/// document, as a prompt begins and a text of the model ends (a part that begins or ends within a document
/// has none there), and each document's ids are those of its text; otherwise the ids are those of all the
/// text at once.
/// Throws:  DataError if the folder holds something already or cannot be written, the disk is full, a file
///          cannot be read, or, naming file and place, the tokenizer does not take the text
PreparedTokens prepare_tokens(const TextSplit& corpus, const TextTokenizer& tokenizer,
                              const std::string& folder, const PrepareProgress& progress = {},
                              bool separate = true);

}  // namespace tapeformer
