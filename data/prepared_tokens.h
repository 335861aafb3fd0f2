#pragma once

#include <tapeformer/data/instructions.h>
#include <tapeformer/data/text_corpus.h>
#include <tapeformer/data/token_file.h>
#include <tapeformer/data/tokenizers/tokenizer.h>

#include <functional>
#include <memory>
#include <string>

namespace tapeformer {

/// A prepared folder, with the files `tokenizer`, `train.tokens` and `validation.tokens`, and for
/// instructions `train.answers` and `validation.answers`, the marks that TokenFile::with_answers reads.
struct PreparedTokens {
  std::shared_ptr<const Tokenizer> tokenizer;  ///< the tokenizer that made the ids
  /// The two parts of the text.
  TokenFile train, validation;

  /// Throws: DataError if a file is missing or damaged, or they do not belong together
  static PreparedTokens open(const std::string& folder);
};

/// Throws as write_prepared_tokens() would, as far as that is known before anything is written.
void check_unprepared(const std::string& folder);

/// Appends the ids of one part to its token file.
using WriteTokens = std::function<void(TokenFileWriter& writer)>;

/// Makes a prepared folder of the ids that `train` and `validation` append; it appears when it is complete.
/// Throws:  DataError if the folder is not empty or cannot be written, or the disk is full; exceptions of
///          `train` and `validation`
PreparedTokens write_prepared_tokens(const Tokenizer& tokenizer, const std::string& folder,
                                     const WriteTokens& train, const WriteTokens& validation);

/// Called with the bytes done and in total. An exception from it ends the work and leaves no folder behind.
using PrepareProgress = std::function<void(Index done, Index total)>;

/// Encodes both parts of a corpus into a new prepared folder that appears when it is complete. If the
/// tokenizer has begin or end tokens, they enclose every document, and each document is encoded separately;
/// where a part begins or ends within a document, it has none. Otherwise the text is encoded as a whole.
/// Takes constant memory if the tokenizer has a safe_cut(); otherwise a whole text is in memory.
/// Throws:  as write_prepared_tokens; DataError if a file cannot be read, or, naming file and place, if the
///          tokenizer cannot encode the text
PreparedTokens prepare_tokens(const TextSplit& corpus, const Tokenizer& tokenizer, const std::string& folder,
                              const PrepareProgress& progress = {});
/// Encodes instructions: each is a document, its prompt and its answer are encoded separately, and the end
/// token belongs to the answer.
/// Throws:  as write_prepared_tokens; DataError if the tokenizer lacks an end token or cannot encode a text
PreparedTokens prepare_tokens(const std::vector<Instruction>& train,
                              const std::vector<Instruction>& validation, const Tokenizer& tokenizer,
                              const std::string& folder);

}  // namespace tapeformer
