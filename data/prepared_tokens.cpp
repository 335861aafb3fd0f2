#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/text/file.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/prepared_tokens.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

namespace tapeformer {
namespace {

namespace files = std::filesystem;

constexpr const char *kTokenizer = "tokenizer", *kTrain = "train.tokens", *kValidation = "validation.tokens";

/// A folder that is called FOLDER.partial until finish() renames it. Without finish(), it is removed.
class PartialFolder {
 public:
  /// Throws: DataError
  explicit PartialFolder(const std::string& folder) : folder_(files::path(folder + "/").parent_path()) {
    partial_ = folder_.string() + ".partial";
    if (files::exists(folder_) && !(files::is_directory(folder_) && files::is_empty(folder_))) {
      throw DataError(folder_, 0, "already exists; try another folder, or remove it");
    }
    if (folder_.has_parent_path()) files::create_directories(folder_.parent_path());
    lock();
    remove();  // what was left when a process was killed
    if (!files::create_directory(partial_)) {
      close(lock_);
      throw DataError(folder_, 0, "cannot be made: its " + partial_.string() + " holds other files");
    }
    lock();
  }
  ~PartialFolder() {
    remove();
    close(lock_);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  std::string file(const char* name) const { return partial_ / name; }
  void finish() {
    sync_folder(partial_);
    files::rename(partial_, folder_);
    sync_folder(folder_.parent_path());
  }

 private:
  /// Keeps other processes out. Throws: DataError if one of them is writing here
  void lock() {
    if (lock_ >= 0) close(lock_);
    lock_ = ::open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock_ < 0 || flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    close(lock_);
    throw DataError(folder_, 0,
                    "is being made by another process; wait until it has ended, or try another folder");
  }
  /// Removes our files only, in case the folder is somebody else's.
  void remove() {
    std::error_code ignored;
    for (const char* name : {kTokenizer, kTrain, kValidation}) {
      files::remove(partial_ / name, ignored);
      files::remove(partial_ / (std::string(name) + ".partial"), ignored);
    }
    files::remove(partial_, ignored);
  }

  files::path folder_, partial_;
  int lock_ = -1;  // partial_, open
};

/// Encodes documents that come in pieces to the ids of the whole.
class PieceEncoder {
 public:
  PieceEncoder(const TextTokenizer& tokenizer, TokenFileWriter& writer)
      : tokenizer_(tokenizer), writer_(writer) {}

  void begin(const TextDocument& document) {
    name_ = document.name;
    place_ = document.first - static_cast<Index>(waiting_.size());
  }
  void add(std::string_view piece) {
    waiting_ += piece;
    if (waiting_.size() < try_at_) return;
    write(tokenizer_.safe_cut(waiting_));
    try_at_ = 2 * waiting_.size();  // of a very long word no byte is looked at more than a few times
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
      if (begun_) {
        tokenizer_.encode_rest(text, ids_);
      } else {
        tokenizer_.encode(text, ids_);
      }
      begun_ = true;
    } catch (const DataError& error) {
      const std::string from = ", counted from byte " + std::to_string(std::max<Index>(place_, 0));
      throw DataError(name_, 0, error.what() + from + " of the file");
    }
    writer_.append(ids_);
    waiting_.erase(0, bytes);
    place_ += static_cast<Index>(bytes);
  }

  const TextTokenizer& tokenizer_;
  TokenFileWriter& writer_;
  std::string name_, waiting_;
  bool begun_ = false;      // whether some of the text is written
  std::size_t try_at_ = 0;  // bytes that wait before a cut is looked for again
  Index place_ = 0;         // of what is waiting, in the document
  std::vector<std::int32_t> ids_;
};

/// `marks`: whether begin and end tokens are written.
void encode_part(const TextCorpus& part, const TextTokenizer& tokenizer, bool marks, TokenFileWriter& writer,
                 const std::function<void(Index bytes)>& advance) {
  PieceEncoder encoder(tokenizer, writer);
  for (const TextDocument& document : part.documents()) {
    if (marks && tokenizer.begin() && document.first == 0) writer.append({*tokenizer.begin()});
    encoder.begin(document);
    document.read([&](std::string_view piece) {
      encoder.add(piece);
      advance(static_cast<Index>(piece.size()));
    });
    if (marks) encoder.finish();
    if (marks && tokenizer.end() && document.ends) writer.append({*tokenizer.end()});
  }
  encoder.finish();
  writer.finish();
}

}  // namespace

PreparedTokens PreparedTokens::open(const std::string& folder) {
  const std::string name = folder + "/" + kTokenizer, content = read_file(name);
  PreparedTokens tokens{parse_text_tokenizer(content, name), TokenFile::open(folder + "/" + kTrain),
                        TokenFile::open(folder + "/" + kValidation)};
  for (const TokenFile* file : {&tokens.train, &tokens.validation}) {
    if (file->fingerprint() != hash_text(content) ||
        file->vocabulary() != tokens.tokenizer->vocabulary_size()) {
      throw DataError(file->path(), 0, "was made with another tokenizer than " + name);
    }
  }
  return tokens;
}

PreparedTokens prepare_tokens(const TextSplit& corpus, const TextTokenizer& tokenizer,
                              const std::string& folder, const PrepareProgress& progress, bool separate) {
  const std::string content = tokenizer.serialize();
  const bool marks = separate && (tokenizer.begin() || tokenizer.end());
  try {
    PartialFolder partial(folder);
    Index done = 0;
    const auto advance = [&, total = corpus.train.bytes() + corpus.validation.bytes()](Index bytes) {
      done += bytes;
      if (progress) progress(done, total);
    };
    const auto encode = [&](const TextCorpus& part, const char* name) {
      TokenFileWriter writer(partial.file(name), tokenizer.vocabulary_size(), hash_text(content));
      encode_part(part, tokenizer, marks, writer, advance);
    };
    encode(corpus.train, kTrain);
    encode(corpus.validation, kValidation);
    AtomicFile<> file(partial.file(kTokenizer));
    file.append(content);
    file.finish();
    partial.finish();
  } catch (const files::filesystem_error& error) {
    throw DataError(folder, 0, "cannot be made: " + error.code().message());
  }
  return PreparedTokens::open(folder);
}

}  // namespace tapeformer
