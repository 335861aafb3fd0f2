#pragma once

#include <tapeformer/autograd/shape.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tapeformer {

/// A stream of token ids on disk, mapped into memory. Reading leaves no pages behind, so a file of any size
/// is read in constant memory.
/// Format:  64 bytes of header (magic, version, bytes an id, vocabulary, number of ids, the tokenizer's
///          fingerprint, checksum of the header), then the ids, little-endian, 2 bytes each if the vocabulary
///          fits, else 4
class TokenFile {
 public:
  /// Throws: DataError naming the file and what is wrong: no token file, another version, a header with a wrong
  ///         checksum, a length that is not the header's
  static TokenFile open(const std::string& path);

  Index size() const { return size_; }
  Index vocabulary() const { return vocabulary_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  const std::string& path() const { return path_; }
  /// Copies ids [first, first + count) to `to`.
  /// Throws: DataError if they are not all there, or an id is not below vocabulary()
  void read(Index first, Index count, std::int32_t* to) const;

 private:
  TokenFile() = default;
  std::string path_;
  std::shared_ptr<const unsigned char> bytes_;
  Index size_ = 0, vocabulary_ = 0, id_bytes_ = 0;
  std::uint64_t fingerprint_ = 0;
};

/// Writes a token file piece by piece: `path`.partial until finish() makes it `path`. Without finish(), or
/// after an error, nothing is left behind.
class TokenFileWriter {
 public:
  /// `fingerprint` is hash_text of the tokenizer's serialize(). Throws: DataError
  TokenFileWriter(std::string path, Index vocabulary, std::uint64_t fingerprint);
  ~TokenFileWriter();
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;

  /// Throws: DataError if the disk is full, or an id is outside the vocabulary
  void append(const std::int32_t* ids, Index count);
  void append(const std::vector<std::int32_t>& ids) { append(ids.data(), static_cast<Index>(ids.size())); }
  Index size() const { return size_; }
  void finish();

 private:
  struct File;
  std::unique_ptr<File> file_;
  std::string path_;
  Index vocabulary_ = 0, size_ = 0;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace tapeformer
