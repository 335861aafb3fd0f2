#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/text_corpus.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace tapeformer {
namespace {

namespace files = std::filesystem;

constexpr Index kBytesAtOnce = 1 << 20;

/// Thrown to stop reading early.
struct Enough {};

bool is_text(const TextDocument& document) {
  try {
    document.read([](std::string_view piece) {
      if (find_no_text(piece) != piece.npos) throw Enough();
    });
  } catch (const Enough&) {
    return false;
  }
  return true;
}

bool begins_code_point(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

Index count_code_points(const TextDocument& document) {
  Index count = 0;
  document.read(
      [&](std::string_view piece) { count += std::count_if(piece.begin(), piece.end(), begins_code_point); });
  return count;
}

/// The number of bytes before code point `number`, which the document must have.
Index bytes_before(const TextDocument& document, Index number) {
  Index bytes = 0;
  try {
    document.read([&](std::string_view piece) {
      for (const char byte : piece) {
        if (begins_code_point(byte) && number-- == 0) throw Enough();
        ++bytes;
      }
    });
  } catch (const Enough&) {
  }
  return bytes;
}

/// "5 files (a, b, c and 2 more)".
std::string count_text(std::vector<std::string> names, const char* one, const char* many) {
  constexpr std::size_t kShown = 3;
  const std::string count = number_of(names.size(), one, many);
  const std::string more = names.size() > kShown ? format(" and {} more", names.size() - kShown) : "";
  names.resize(std::min(kShown, names.size()));
  return names.empty() ? count : format("{} ({}{})", count, joined(names, ", "), more);
}

}  // namespace

void TextDocument::read(const std::function<void(std::string_view piece)>& reader) const {
  if (memory.data() != nullptr)
    return reader(memory.substr(static_cast<std::size_t>(first), static_cast<std::size_t>(bytes)));
  const OpenedFile<> file(name);
  std::string piece;
  for (Index left = bytes; left > 0;) {
    const std::size_t begun = piece.size();  // bytes of a code point begun in the previous piece
    const auto count = static_cast<std::size_t>(std::min(left, kBytesAtOnce));
    piece.resize(begun + count);
    file.read(static_cast<std::uint64_t>(first + bytes - left), count, &piece[begun]);
    left -= static_cast<Index>(count);
    const std::size_t unfinished = left > 0 ? unfinished_utf8(piece) : 0;
    const std::size_t whole = piece.size() - unfinished;
    reader(std::string_view(piece).substr(0, whole));
    piece.erase(0, whole);
  }
}

TextCorpus TextCorpus::open(const std::vector<std::string>& paths) {
  TextCorpus corpus;
  for (const std::string& path : paths) {
    try {
      corpus.add_path(path);
    } catch (const files::filesystem_error& error) {
      throw DataError(error.path1().empty() ? path : error.path1().string(), 0,
                      "cannot be read: " + error.code().message());
    }
  }
  if (corpus.documents_.empty()) {
    const std::string names = paths.empty() ? "[corpus] no file is named" : paths[0];
    const std::string more = paths.size() > 1 ? " (nor do the others)" : "";
    throw DataError(names, 0, "holds no text" + more + ": " + corpus.description());
  }
  return corpus;
}

TextCorpus TextCorpus::in_memory(std::string_view text, const std::string& name) {
  if (text.empty()) throw DataError(name, 0, "holds no text");
  TextCorpus corpus;
  corpus.documents_.push_back({name, 0, static_cast<Index>(text.size()), text, true});
  return corpus;
}

void TextCorpus::add_path(const std::string& path) {
  const files::file_status status = files::status(path);
  if (files::is_directory(status)) return add_folder(path);
  if (!files::exists(status)) throw DataError(path, 0, "does not exist");
  if (!files::is_regular_file(status)) throw DataError(path, 0, "is neither a file nor a folder");
  const auto bytes = static_cast<Index>(files::file_size(path));
  if (bytes > 0) documents_.push_back({path, 0, bytes, {}, true});
}

void TextCorpus::add_folder(const std::string& folder) {
  std::vector<files::path> entries;
  for (const files::directory_entry& entry : files::directory_iterator(folder)) entries.push_back(entry);
  std::sort(entries.begin(), entries.end());
  for (const files::path& entry : entries) {
    if (entry.filename().string()[0] == '.') {
      hidden_.push_back(entry);
    } else if (files::is_directory(files::symlink_status(entry))) {  // links could lead in circles
      add_folder(entry);
    } else {
      const bool file = files::is_regular_file(files::status(entry));
      const TextDocument document{entry, 0, file ? static_cast<Index>(files::file_size(entry)) : 0, {}, true};
      if (!file || !is_text(document)) {
        not_text_.push_back(entry);
      } else if (document.bytes > 0) {
        documents_.push_back(document);
      }
    }
  }
}

Index TextCorpus::bytes() const {
  Index sum = 0;
  for (const TextDocument& document : documents_) sum += document.bytes;
  return sum;
}

std::string TextCorpus::description() const {
  std::vector<std::string> names;
  for (const TextDocument& document : documents_) names.push_back(document.name);
  std::string text = count_text(names, "file", "files") + ", " + number_of(bytes(), "byte");
  if (hidden_.empty() && not_text_.empty()) return text;
  return text + "; skipped " + count_text(hidden_, "hidden", "hidden") + " and " +
         count_text(not_text_, "that is not UTF-8 text", "that are not UTF-8 text");
}

void TextCorpus::check_text(const std::function<void()>& at_piece) const {
  for (TextDocument document : documents_) {
    // From the start of the file, so that lines and bytes are the file's.
    document.bytes += document.first;
    document.first = 0;
    Index line = 1, before = 0;
    document.read([&](std::string_view piece) {
      if (at_piece) at_piece();
      const std::size_t bad = find_no_text(piece);
      line += std::count(piece.begin(), piece.begin() + std::min(bad, piece.size()), '\n');
      if (bad != piece.npos)
        throw DataError(document.name, line,
                        no_text_message(piece[bad], before + static_cast<Index>(bad) + 1, "file"));
      before += static_cast<Index>(piece.size());
    });
  }
}

TextSource TextCorpus::source() const {
  return [documents = documents_](const std::function<void(std::string_view)>& reader) {
    for (const TextDocument& document : documents) document.read(reader);
  };
}

Index training_part(Index all, double validation_fraction, const char* item, const std::string& source) {
  if (!(validation_fraction > 0 && validation_fraction < 1))
    throw DataError(format("[corpus] the validation part must be a fraction between 0 and 1; got {}",
                           validation_fraction));
  // A tenth of ten items is one, though 1 - 0.9 is a little less than a tenth.
  const auto cut =
      static_cast<Index>(std::floor(static_cast<double>(all) * (1 - validation_fraction) + 1e-6));
  if (cut < 1 || cut >= all)
    throw DataError(source, 0,
                    format("is too short: of {}, {} would be for training and {} for validation",
                           number_of(all, item), cut, all - cut));
  return cut;
}

TextSplit TextCorpus::split(double validation_fraction) const {
  Index all = 0;
  std::vector<Index> counts;
  for (const TextDocument& document : documents_) {
    counts.push_back(count_code_points(document));
    all += counts.back();
  }
  const Index cut = training_part(all, validation_fraction, "character", documents_[0].name);
  TextCorpus train, validation;
  Index before = 0;
  for (std::size_t i = 0; i < documents_.size(); ++i) {
    TextDocument head = documents_[i], tail = head;
    if (cut >= before + counts[i]) {
      tail.bytes = 0;
    } else {
      head.bytes = cut > before ? bytes_before(head, cut - before) : 0;
      tail.first += head.bytes;
      tail.bytes -= head.bytes;
    }
    if (tail.bytes > 0) head.ends = false;
    if (head.bytes > 0) train.documents_.push_back(head);
    if (tail.bytes > 0) validation.documents_.push_back(tail);
    before += counts[i];
  }
  return {train, validation};
}

}  // namespace tapeformer
