#pragma once

#include <tapeformer/data/text_tokenizer.h>
#include <tapeformer/data/token_file.h>
#include <tapeformer/examples/language_options.h>
#include <tapeformer/examples/progress.h>
#include <tapeformer/examples/run_folder.h>

#include <memory>
#include <string>

namespace tapeformer {

/// What a training reads: a tokenizer, and the tokens of two parts of a corpus.
struct LanguageData {
  std::shared_ptr<const TextTokenizer> tokenizer;
  TokenFile train, validation;

  /// A number that changes with the tokenizer or the number of tokens: resuming needs the same data.
  std::uint64_t fingerprint() const;
};

/// Ctrl-C came while data was made; what was begun is gone.
class Interrupted : public Error {
 public:
  using Error::Error;
};

/// The data of a new training. Where no prepared folder is named, tokenizer and token files are made in the
/// run's folder; `tokenizer` is that of the model to fine-tune, or none. After an error, nothing that was
/// made stays. Throws: DataError, Interrupted
LanguageData make_language_data(const LanguageOptions& options, const RunFolder& folder,
                                const std::shared_ptr<const TextTokenizer>& tokenizer, Progress& progress);

/// The data of a training that is there: from its folder, or the prepared folder that its options name.
/// Throws: DataError
LanguageData open_language_data(const LanguageOptions& options, const RunFolder& folder);

/// Makes tokenizer and token files of a corpus in a folder. Throws: DataError, Interrupted
LanguageData prepare_language_data(const LanguageDataOptions& options, const std::string& folder,
                                   const std::shared_ptr<const TextTokenizer>& tokenizer, Progress& progress);

}  // namespace tapeformer
