#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/data/prepared_tokens.h>
#include <tapeformer/examples/language/options.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/run_folder.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

/// Thrown when Ctrl-C interrupts the preparation of data or a measurement, which leaves nothing behind.
class Interrupted : public Error {
 public:
  using Error::Error;
};

/// A tokenizer, and the tokens of the two parts of a corpus.
using LanguageData = PreparedTokens;

/// Makes a tokenizer, unless one is given, and token files of a corpus in a new folder.
/// Throws: Error and its subclasses, such as Interrupted, and then leaves nothing behind
LanguageData prepare_corpus(const LanguageDataOptions& options, std::shared_ptr<const Tokenizer> tokenizer,
                            const std::string& folder, Progress& progress);

/// Writes the tokens of a text, at least two, to a new folder; with `loss_on` answers those of instructions.
/// Throws: as prepare_corpus
TokenFile encode_text(const std::vector<std::string>& paths, const std::string& loss_on,
                      const Tokenizer& tokenizer, const std::string& folder, Progress& progress);

/// The data of a new run: that in options.tokens, or else new data in the folder `tokens` of the run. If the
/// run fine-tunes a model, `tokenizer` is the model's. Throws: as prepare_corpus
LanguageData make_language_data(const LanguageOptions& options, const RunFolder& folder,
                                const std::shared_ptr<const Tokenizer>& tokenizer, Progress& progress);

/// The token that ends documents with --documents apart, else none. Throws: Error if the tokenizer lacks one
std::optional<std::int32_t> document_end(const LanguageOptions& options, const Tokenizer& tokenizer);

/// Removes the files of make_language_data from the run's folder. Throws: DataError if its lock is gone
void discard_language_data(const RunFolder& folder);

/// The data of an existing run. Throws: DataError
LanguageData open_language_data(const LanguageOptions& options, const RunFolder& folder);

/// A number that changes with the tokenizer or the number of tokens: resuming needs the same data.
std::uint64_t fingerprint(const LanguageData& data);

/// Writes config.json and the tokenizer of a new run, for generate, evaluate, export and fine-tuning.
void describe_language_run(const RunFolder& folder, const LanguageOptions& options,
                           const DecoderOnlyConfig& config, const LanguageData& data);

}  // namespace tapeformer
