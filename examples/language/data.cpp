#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/built_in_corpus.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/sentencepiece_text.h>
#include <tapeformer/examples/language/data.h>
#include <tapeformer/examples/language/run.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/shared/program.h>

#include <algorithm>
#include <filesystem>

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

std::string tokens_folder(const LanguageOptions& options, const RunFolder& folder) {
  return options.tokens.empty() ? folder.file("tokens") : options.tokens;
}

void stop_if_interrupted(Progress& progress) {
  if (!interrupted()) return;
  progress.clear();
  throw Interrupted("interrupted; nothing was saved");
}

TextCorpus corpus_of(const std::vector<std::string>& paths) {
  if (!paths.empty()) return TextCorpus::open(paths);
  static const std::string text = built_in_text();
  return TextCorpus::in_memory(text, "English and French sentences");
}

/// The text that a tokenizer is trained on; shows the progress of reading it.
TextSource watched(const std::vector<const TextCorpus*>& parts, Progress& progress) {
  return [parts, &progress](const std::function<void(std::string_view)>& reader) {
    Index done = 0, all = 0;
    for (const TextCorpus* part : parts) all += part->bytes();
    for (const TextCorpus* part : parts) {
      part->source()([&](std::string_view piece) {
        stop_if_interrupted(progress);
        reader(piece);
        done += static_cast<Index>(piece.size());
        progress.status("making the tokenizer: " + count_text(done) + "/" + count_text(all) + " bytes read");
      });
    }
  };
}

/// Trains on the training part alone, or for a closed kind on both parts: it could not encode validation text
/// with other characters.
std::shared_ptr<const Tokenizer> make_tokenizer(const LanguageDataOptions& options, const TextSplit& parts,
                                                Progress& progress) {
  const TokenizerKind& kind = tokenizer_kind(text_tokenizers(), options.tokenizer);
  std::vector<const TextCorpus*> texts = {&parts.train};
  if (kind.is_closed) texts.push_back(&parts.validation);
  return kind.train(watched(texts, progress), options.vocabulary);
}

/// Refuses bytes that are not text, or logs a note if the tokenizer is byte-level.
void check_text(const TextCorpus& text, const std::string& kind, Progress& progress) {
  try {
    text.check_text([&] { stop_if_interrupted(progress); });
  } catch (const DataError& error) {
    const TokenizerKind* known = find_kind(text_tokenizers(), kind);
    if (known == nullptr || !known->takes_any_bytes) throw;
    progress.log(std::string("note: this is not text, and is read byte by byte: ") + error.what());
  }
}

PrepareProgress shown(Progress& progress) {
  return [&progress, begun = now_seconds()](Index done, Index all) {
    stop_if_interrupted(progress);
    const double rate = static_cast<double>(done) / std::max(1e-9, now_seconds() - begun);
    progress.status("encoding " + count_text(done) + "/" + count_text(all) + " bytes, " +
                    format("{:.1f} MB/s, ", rate / 1e6) +
                    duration_text(static_cast<double>(all - done) / rate) + " left");
  };
}

std::string needs_end(const std::string& kind) {
  return " needs a tokenizer with an end token, but the " + kind +
         " tokenizer has none; try --tokenizer sentencepiece, --tokenizer-model or --from";
}

LanguageData prepare_instructions(const LanguageDataOptions& options,
                                  std::shared_ptr<const Tokenizer> tokenizer, const std::string& folder,
                                  Progress& progress) {
  if (options.corpus.empty()) throw Error("--loss-on answers needs --corpus, files of instructions");
  std::vector<Instruction> train = read_instructions(options.corpus),
                           validation = read_instructions(options.validation);
  progress.log("corpus: " + number_of(train.size(), "instruction"));
  if (options.validation.empty()) {
    const Index cut = training_part(static_cast<Index>(train.size()), options.validation_fraction,
                                    "instruction", joined(options.corpus, ", "));
    validation.assign(train.begin() + cut, train.end());
    train.resize(static_cast<std::size_t>(cut));
  }
  if (tokenizer == nullptr) {
    if (options.tokenizer != "sentencepiece") throw Error("--loss-on answers" + needs_end(options.tokenizer));
    const auto source = [&](const std::function<void(std::string_view)>& reader) {
      for (const Instruction& one : train) reader(one.prompt + one.answer + "\n");
    };
    tokenizer = train_sentencepiece_tokenizer(source, options.vocabulary);
  }
  return prepare_tokens(train, validation, *tokenizer, folder);
}

/// The data, in which only the tokens count that options.data.loss_on names.
LanguageData counted(const LanguageOptions& options, LanguageData data) {
  if (options.data.loss_on == "answers")
    data.train = data.train.with_answers(), data.validation = data.validation.with_answers();
  return data;
}

}  // namespace

LanguageData prepare_corpus(const LanguageDataOptions& options, std::shared_ptr<const Tokenizer> tokenizer,
                            const std::string& folder, Progress& progress) {
  if (tokenizer == nullptr && !options.tokenizer_model.empty())
    tokenizer = find_tokenizer(options.tokenizer_model);
  if (options.loss_on == "answers") return prepare_instructions(options, tokenizer, folder, progress);
  const TextCorpus corpus = corpus_of(options.corpus);
  for (const TextDocument& document : corpus.documents())
    if (fs::path(document.name).filename() == "training.lock")
      throw DataError(document.name, 0, "is a run's, not text to train on; try a corpus without run folders");
  progress.log((options.corpus.empty() ? "the built-in text: " : "corpus: ") + corpus.description());
  const std::string kind = tokenizer ? tokenizer->kind() : options.tokenizer;
  check_text(corpus, kind, progress);  // before anything else reads all of it
  const bool has_own = !options.validation.empty();
  const TextSplit parts = has_own ? TextSplit{corpus, TextCorpus::open(options.validation)}
                                  : corpus.split(options.validation_fraction);
  if (has_own) check_text(parts.validation, kind, progress);
  if (tokenizer == nullptr) tokenizer = make_tokenizer(options, parts, progress);
  LanguageData result = prepare_tokens(parts, *tokenizer, folder, shown(progress));
  progress.clear();
  return result;
}

LanguageData make_language_data(const LanguageOptions& options, const RunFolder& folder,
                                const std::shared_ptr<const Tokenizer>& tokenizer, Progress& progress) {
  const std::string tokens = tokens_folder(options, folder);
  if (options.tokens.empty()) {
    discard_language_data(folder);  // left by a run that never reached its first checkpoint
    return counted(options, prepare_corpus(options.data, tokenizer, tokens, progress));
  }
  LanguageData result = open_language_data(options, folder);
  if (tokenizer != nullptr && tokenizer->serialize() != result.tokenizer->serialize()) {
    throw DataError(
        tokens, 0,
        "was prepared with a different tokenizer than that of --from; prepare it with --tokenizer-model " +
            base_of(options.from));
  }
  return result;
}

TokenFile encode_text(const std::vector<std::string>& paths, const std::string& loss_on,
                      const Tokenizer& tokenizer, const std::string& folder, Progress& progress) {
  if (loss_on == "answers")
    return prepare_tokens(read_instructions(paths), {}, tokenizer, folder).train.with_answers();
  const TextCorpus corpus = TextCorpus::open(paths);
  progress.log("corpus: " + corpus.description());
  check_text(corpus, tokenizer.kind(), progress);
  // Prepared tokens have two parts; the second one is the smallest text that every tokenizer accepts.
  std::string least = tokenizer.bytes_of(0);
  if (least.empty()) least = "\n";
  const TextSplit parts{corpus, TextCorpus::in_memory(least, "nothing")};
  LanguageData result = prepare_tokens(parts, tokenizer, folder, shown(progress));
  progress.clear();
  if (result.train.size() < 2)
    throw DataError(joined(paths, ", "), 0,
                    format("holds {}, and only a token after another is measured; try a longer text",
                           number_of(result.train.size(), "token")));
  return result.train;
}

std::optional<std::int32_t> document_end(const LanguageOptions& options, const Tokenizer& tokenizer) {
  if (options.documents != "apart") return {};
  if (tokenizer.end()) return tokenizer.end();
  throw Error("--documents apart" + needs_end(tokenizer.kind()));
}

void discard_language_data(const RunFolder& folder) {
  folder.check_lock();
  const fs::path tokens = folder.file("tokens");
  std::error_code ignored;
  for (const char* name :
       {"tokenizer", "train.tokens", "validation.tokens", "train.answers", "validation.answers"})
    fs::remove(tokens / name, ignored);
  if (fs::is_directory(tokens, ignored)) fs::remove(tokens, ignored);  // unless it has other files
}

LanguageData open_language_data(const LanguageOptions& options, const RunFolder& folder) {
  return counted(options, LanguageData::open(tokens_folder(options, folder)));
}

std::uint64_t fingerprint(const LanguageData& data) {
  return mix_bits(mix_bits(data.train.fingerprint(), static_cast<std::uint64_t>(data.train.size())),
                  static_cast<std::uint64_t>(data.validation.size()));
}

void describe_language_run(const RunFolder& folder, const LanguageOptions& options,
                           const DecoderOnlyConfig& config, const LanguageData& data) {
  const std::string tokenizer = data.tokenizer->serialize();
  Json described = parse_json(config.to_json());
  described["training"] = options;
  described["tokenizer_fingerprint"] = hash_text(tokenizer);
  described["data_fingerprint"] = fingerprint(data);
  folder.write("config.json", described.dump(2) + "\n");
  folder.write(kTokenizerFile, tokenizer);
}

}  // namespace tapeformer
