#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/data/prepared_tokens.h>
#include <tapeformer/examples/language/options.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/run_folder.h>

#include <memory>
#include <string>
#include <vector>

namespace tapeformer {

/// Ctrl-C came while data was made; what was begun is gone.
class Interrupted : public Error {
 public:
  using Error::Error;
};

/// What a training reads: a tokenizer, and the tokens of the two parts of a corpus.
using LanguageData = PreparedTokens;

/// Makes tokenizer and token files of a corpus in a new folder; with `tokenizer`, for that one.
/// Throws: DataError, Interrupted; nothing of what was made stays then
LanguageData prepare_corpus(const LanguageDataOptions& options,
                            std::shared_ptr<const TextTokenizer> tokenizer, const std::string& folder,
                            Progress& progress);

/// The tokens of a text, in a new folder. Throws: as prepare_corpus
TokenFile encode_text(const std::vector<std::string>& paths, const TextTokenizer& tokenizer,
                      const std::string& folder, Progress& progress);

/// The data of a new training: what options.tokens names, or made in the folder `tokens` of the run.
/// `tokenizer` is that of the model to fine-tune, or none. Throws: as prepare_corpus
LanguageData make_language_data(const LanguageOptions& options, const RunFolder& folder,
                                const std::shared_ptr<const TextTokenizer>& tokenizer, Progress& progress);

/// Removes what make_language_data made in the run's folder.
void discard_language_data(const RunFolder& folder);

/// The data of a run that is there. Throws: DataError
LanguageData open_language_data(const LanguageOptions& options, const RunFolder& folder);

/// A number that changes with the tokenizer or the number of tokens: resuming needs the same data.
std::uint64_t fingerprint(const LanguageData& data);

/// Writes config.json and the tokenizer of a new run, for generate, evaluate, export and fine-tuning.
void describe_language_run(const RunFolder& folder, const LanguageOptions& options,
                           const DecoderOnlyConfig& config, const LanguageData& data);

}  // namespace tapeformer
