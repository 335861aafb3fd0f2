#pragma once

#include <tapeformer/autograd/shape.h>
#include <tapeformer/autograd/system/file.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tapeformer {

/// Copies `count` ids of 2 or 4 bytes each, little-endian, from byte `from` of a file on, to `to`.
/// Throws:  DataError if they cannot be read
void read_ids(const OpenedFile<>& file, std::uint64_t from, Index id_bytes, Index count, std::int32_t* to);

/// Token ids on disk. A read loads only the requested window, so that a file of any size takes constant
/// memory. Thread-safe. Format: 64 bytes of header, then the ids, 2 bytes each if the vocabulary fits, else
/// 4; all little-endian. Header: "TAPETOKS", version (4 bytes), bytes per id (4), vocabulary (8),
/// number of ids (8), the tokenizer's fingerprint (8), checksum() of the ids' bytes (8), zeros (8), FNV-1a of
/// these 56 bytes (8). Version 1 has zeros for the ids' checksum, and is read without it.
class TokenFile {
 public:
  /// Throws: DataError naming the file and what is wrong: not a token file, an unknown version, a wrong
  ///         checksum of the header, or a length that contradicts it
  static TokenFile open(const std::string& path);

  /// The number of ids.
  Index size() const { return size_; }
  /// The size of the vocabulary; all ids are below it.
  Index vocabulary() const { return vocabulary_; }
  /// The fingerprint of the tokenizer: see TokenFileWriter.
  std::uint64_t fingerprint() const { return fingerprint_; }
  /// The path of the file.
  const std::string& path() const { return file_.path(); }
  /// Copies ids [first, first + count) to `to`.
  /// Throws: DataError if they are not all there, or an id is not below vocabulary()
  void read(Index first, Index count, std::int32_t* to) const;
  /// The file with the marks next to it, NAME.answers next to NAME.tokens: a token file that has 1 for every
  /// id of an answer, and 0 for the others.
  /// Throws: DataError if there are no marks, or not one for each id
  TokenFile with_answers() const;
  /// `ids` are those of [first, first + count): replaces all outside answers by -1; without marks, none.
  void ignore_prompts(Index first, Index count, std::int32_t* ids) const;
  /// Reads all ids, gigabytes per second. Throws: DataError if they do not match the checksum, if any
  void check() const;

 private:
  explicit TokenFile(const std::string& path) : file_(path) {}

  OpenedFile<> file_;
  std::optional<std::uint64_t> checksum_;  // of the ids' bytes
  std::shared_ptr<const TokenFile> answers_;
  Index size_ = 0, vocabulary_ = 0, id_bytes_ = 0;
  std::uint64_t fingerprint_ = 0;
};

/// Writes a token file piece by piece, through an AtomicFile.
class TokenFileWriter {
 public:
  /// `fingerprint` is hash_text of the tokenizer's serialize(). Errors call the file `shown`, where that is
  /// another name than `path`.
  /// Throws: DataError if the file cannot be written
  TokenFileWriter(const std::string& path, Index vocabulary, std::uint64_t fingerprint,
                  const std::string& shown = {});

  /// All ids must be below the vocabulary. Throws: DataError if the disk is full
  void append(const std::vector<std::int32_t>& ids);
  /// Throws: DataError if the disk is full
  void finish();

 private:
  void write(std::size_t bytes);

  AtomicFile<> file_;
  std::string bytes_;  // ids that are encoded and not yet written
  Index vocabulary_;
  std::uint64_t fingerprint_, size_ = 0, checksum_ = 0;
};

}  // namespace tapeformer
