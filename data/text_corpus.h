#pragma once

#include <tapeformer/data/tokenizers/tokenizer.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

/// A part of a file, which is read in pieces of about a megabyte, or of a text in memory, which is one piece.
struct TextDocument {
  std::string name;  ///< the file's path, or a name for the text in memory
  /// Where the part begins, and its length.
  Index first = 0, bytes = 0;
  std::string_view memory;  ///< the whole text; null where the document is a file
  bool ends = true;         ///< whether the part reaches the end of the document

  /// Passes every byte to `reader`, in order. Pieces end between code points, or within bytes that are
  /// not UTF-8.
  /// Throws: DataError if the file cannot be read or has become shorter
  void read(const std::function<void(std::string_view piece)>& reader) const;
};

struct TextSplit;

/// Text to train on. Only names and sizes are kept in memory.
class TextCorpus {
 public:
  /// Takes named files as they are, and the text files (valid UTF-8 without NUL bytes) in named folders,
  /// recursively and in the order of their names. Skips hidden files and folders, and links to folders.
  /// Throws: DataError if a path does not exist, a folder cannot be read, or no path holds text
  static TextCorpus open(const std::vector<std::string>& paths);
  /// `text` must outlive the corpus. Throws: DataError if it is empty
  static TextCorpus in_memory(std::string_view text, const std::string& name);

  /// The documents in the order in which they are read.
  const std::vector<TextDocument>& documents() const { return documents_; }
  /// The size of all documents together.
  Index bytes() const;
  /// "3 files (a/b.txt, a/c.md, d), 12345 bytes; skipped 1 hidden (a/.git) and 5 that are not UTF-8 text
  /// (x, y, z and 2 more)".
  std::string description() const;
  /// Checks that all of it is text: named files may hold any bytes, which only byte-level tokenizers accept.
  /// Calls `at_piece` for every piece.
  /// Throws: DataError naming file, line and byte of invalid UTF-8 or a NUL
  void check_text(const std::function<void()>& at_piece = {}) const;
  /// All documents, one after the other.
  TextSource source() const;

  /// Splits into the first training_part() code points and the rest. Bytes that are not UTF-8 are cut before
  /// one that does not continue a code point. Reads the text once, and one document again up to the cut.
  /// Throws: DataError as training_part()
  TextSplit split(double validation_fraction) const;

 private:
  TextCorpus() = default;
  void add_path(const std::string& path);
  void add_folder(const std::string& folder);

  std::vector<TextDocument> documents_;
  std::vector<std::string> hidden_, not_text_;
};

/// The two parts of a corpus.
struct TextSplit {
  TextCorpus train, validation;  ///< the beginning and the end
};

/// The number of the first of `all` items that are for training, floor((1 - validation_fraction) * all); the
/// rest is for validation.
/// Throws: DataError if the fraction is not between 0 and 1, or one naming `source` if a part is empty
Index training_part(Index all, double validation_fraction, const char* item, const std::string& source);

}  // namespace tapeformer
