#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/partial_folder.h>
#include <tapeformer/data/prepared_tokens.h>

#include <algorithm>

namespace tapeformer {
namespace {

constexpr const char *kTokenizer = "tokenizer", *kTrain = "train.tokens", *kValidation = "validation.tokens",
                     *kTrainAnswers = "train.answers", *kValidationAnswers = "validation.answers";

/// The folder, before all of its files are there.
PartialFolder partial_folder(const std::string& folder) {
  return {folder, {kTokenizer, kTrain, kTrainAnswers, kValidation, kValidationAnswers}};
}

/// Encodes documents that arrive in pieces; the ids are those of each whole text.
class PieceEncoder {
 public:
  PieceEncoder(const Tokenizer& tokenizer, TokenFileWriter& writer)
      : tokenizer_(tokenizer), writer_(writer) {}

  void begin(const TextDocument& document) {
    name_ = document.name;
    place_ = document.first - static_cast<Index>(waiting_.size());
  }
  void add(std::string_view piece) {
    waiting_ += piece;
    if (waiting_.size() < try_at_) return;
    write(tokenizer_.safe_cut(waiting_));
    try_at_ = 2 * waiting_.size();  // reads no byte of a very long word more than a few times
  }
  /// Ends a text; the next piece begins another.
  void finish() {
    write(waiting_.size());
    begun_ = false;
  }

 private:
  void write(std::size_t bytes) {
    if (bytes == 0) return;
    ids_.clear();
    try {
      const std::string_view text = std::string_view(waiting_).substr(0, bytes);
      begun_ ? tokenizer_.encode_rest(text, ids_) : tokenizer_.encode(text, ids_);
      begun_ = true;
    } catch (const DataError& error) {
      throw DataError(
          name_, 0, format("{}, counted from byte {} of the file", error.what(), std::max<Index>(place_, 0)));
    }
    writer_.append(ids_);
    waiting_.erase(0, bytes);
    place_ += static_cast<Index>(bytes);
  }

  const Tokenizer& tokenizer_;
  TokenFileWriter& writer_;
  std::string name_, waiting_;
  bool begun_ = false;      // whether a part of the text has been written
  std::size_t try_at_ = 0;  // with as many waiting bytes the next cut is looked for
  Index place_ = 0;         // where in the document the waiting bytes begin
  std::vector<std::int32_t> ids_;
};

void encode_part(const TextCorpus& part, const Tokenizer& tokenizer, TokenFileWriter& writer,
                 const std::function<void(Index bytes)>& advance) {
  PieceEncoder encoder(tokenizer, writer);
  for (const TextDocument& document : part.documents()) {
    if (tokenizer.begin() && document.first == 0) writer.append({*tokenizer.begin()});
    encoder.begin(document);
    document.read([&](std::string_view piece) {
      encoder.add(piece);
      advance(static_cast<Index>(piece.size()));
    });
    if (tokenizer.begin() || tokenizer.end()) encoder.finish();
    if (tokenizer.end() && document.ends) writer.append({*tokenizer.end()});
  }
  encoder.finish();
}

/// Appends the ids, or with `marks` a mark for each: 1 for the tokens of answers, 0 for others.
void encode_instructions(const std::vector<Instruction>& instructions, const Tokenizer& tokenizer, bool marks,
                         TokenFileWriter& writer) {
  std::vector<std::int32_t> ids, answer;
  for (const Instruction& one : instructions) {
    ids.clear(), answer.clear();
    if (tokenizer.begin()) ids.push_back(*tokenizer.begin());
    tokenizer.encode(one.prompt, ids);
    tokenizer.encode_rest(one.answer, answer);
    answer.push_back(*tokenizer.end());
    writer.append(marks ? std::vector<std::int32_t>(ids.size(), 0) : ids);
    writer.append(marks ? std::vector<std::int32_t>(answer.size(), 1) : answer);
  }
}

/// Writes token files by name; marks have a vocabulary of 2.
PreparedTokens write_parts(const Tokenizer& tokenizer, const std::string& folder,
                           const std::vector<std::pair<const char*, WriteTokens>>& parts) {
  const std::string content = tokenizer.serialize();
  PartialFolder partial = partial_folder(folder);
  for (const auto& [name, write] : parts) {
    const bool marks = name == kTrainAnswers || name == kValidationAnswers;
    TokenFileWriter writer(partial.file(name), marks ? 2 : tokenizer.vocabulary_size(), hash_text(content),
                           partial.finished(name));
    write(writer);
    writer.finish();
  }
  AtomicFile<> file(partial.file(kTokenizer), partial.finished(kTokenizer));
  file.append(content);
  file.finish();
  partial.finish();
  return PreparedTokens::open(folder);
}

}  // namespace

PreparedTokens PreparedTokens::open(const std::string& folder) {
  const std::string name = folder + "/" + kTokenizer, content = read_file(name);
  PreparedTokens tokens{parse_tokenizer(text_tokenizers(), content, name),
                        TokenFile::open(folder + "/" + kTrain), TokenFile::open(folder + "/" + kValidation)};
  for (const TokenFile* file : {&tokens.train, &tokens.validation}) {
    if (file->fingerprint() != hash_text(content) ||
        file->vocabulary() != tokens.tokenizer->vocabulary_size()) {
      throw DataError(file->path(), 0, "was made with a different tokenizer than " + name);
    }
    file->check();
  }
  return tokens;
}

void check_unprepared(const std::string& folder) { partial_folder(folder); }

PreparedTokens write_prepared_tokens(const Tokenizer& tokenizer, const std::string& folder,
                                     const WriteTokens& train, const WriteTokens& validation) {
  return write_parts(tokenizer, folder, {{kTrain, train}, {kValidation, validation}});
}

PreparedTokens prepare_tokens(const TextSplit& corpus, const Tokenizer& tokenizer, const std::string& folder,
                              const PrepareProgress& progress) {
  Index done = 0;
  const auto advance = [&, total = corpus.train.bytes() + corpus.validation.bytes()](Index bytes) {
    done += bytes;
    if (progress) progress(done, total);
  };
  const auto encoded = [&](const TextCorpus& part) {
    return [&](TokenFileWriter& writer) { encode_part(part, tokenizer, writer, advance); };
  };
  return write_prepared_tokens(tokenizer, folder, encoded(corpus.train), encoded(corpus.validation));
}

PreparedTokens prepare_tokens(const std::vector<Instruction>& train,
                              const std::vector<Instruction>& validation, const Tokenizer& tokenizer,
                              const std::string& folder) {
  if (!tokenizer.end())
    throw DataError(format("an answer ends with an end token, but the {} tokenizer has none; try another",
                           tokenizer.kind()));
  const auto encoded = [&](const std::vector<Instruction>& part, bool marks) {
    return [&, marks](TokenFileWriter& writer) { encode_instructions(part, tokenizer, marks, writer); };
  };
  return write_parts(tokenizer, folder,
                     {{kTrain, encoded(train, false)},
                      {kTrainAnswers, encoded(train, true)},
                      {kValidation, encoded(validation, false)},
                      {kValidationAnswers, encoded(validation, true)}});
}

}  // namespace tapeformer
