#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/text/number_of.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/token_file.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

namespace tapeformer {
namespace {

constexpr std::string_view kMagic = "TAPETOKS";
constexpr std::uint64_t kVersion = 1;
constexpr Index kHeader = 64;
constexpr Index kVersionAt = 8, kIdBytesAt = 12, kVocabularyAt = 16, kSizeAt = 24, kFingerprintAt = 32,
                kZerosAt = 40, kChecksumAt = 56;
constexpr Index kMostVocabulary = std::numeric_limits<std::int32_t>::max();
constexpr Index kPiece = 1 << 16;  // bytes that are read at a time

Index bytes_of_id(Index vocabulary) { return vocabulary <= 1 << 16 ? 2 : 4; }

/// Files are little-endian on every machine.
std::uint64_t read_number(const unsigned char* from, int bytes) {
  std::uint64_t number = 0;
  for (int i = 0; i < bytes; ++i) number |= std::uint64_t{from[i]} << (8 * i);
  return number;
}

void write_number(std::string& to, std::uint64_t number, Index bytes) {
  for (Index i = 0; i < bytes; ++i) to += static_cast<char>(number >> (8 * i));
}

std::string header_of(Index vocabulary, Index size, std::uint64_t fingerprint) {
  std::string header(kMagic);
  write_number(header, kVersion, 4);
  write_number(header, static_cast<std::uint64_t>(bytes_of_id(vocabulary)), 4);
  write_number(header, static_cast<std::uint64_t>(vocabulary), 8);
  write_number(header, static_cast<std::uint64_t>(size), 8);
  write_number(header, fingerprint, 8);
  write_number(header, 0, 8);
  write_number(header, 0, 8);
  write_number(header, hash_text(header), 8);
  return header;
}

Index file_bytes(int file) {
  struct stat status {};
  return fstat(file, &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : -1;
}

std::string range_text(Index first, Index count) {
  return number_of(count, "id") + " from " + std::to_string(first);
}

}  // namespace

TokenFile TokenFile::open(const std::string& path) {
  TokenFile opened;
  opened.path_ = path;
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) throw DataError(path, 0, "cannot be opened: " + system_error_text(errno));
  opened.file_.reset(new int(file), [](const int* number) {
    close(*number);
    delete number;
  });
  const Index bytes = file_bytes(file);
  if (bytes < 0) throw DataError(path, 0, "is not a file");
  unsigned char header[kHeader];
  const ssize_t found = pread(file, header, kHeader, 0);
  if (found < 0) throw DataError(path, 0, "cannot be read: " + system_error_text(errno));
  if (found != kHeader) {
    throw DataError(path, 0,
                    "is not a token file: it has " + number_of(bytes, "byte") +
                        ", and the header alone takes " + std::to_string(kHeader));
  }
  opened.parse(header, bytes);
  return opened;
}

void TokenFile::parse(const unsigned char* header, Index bytes) {
  const auto require = [this](bool holds, const std::string& problem) {
    if (!holds) throw DataError(path_, 0, problem);
  };
  require(std::memcmp(header, kMagic.data(), kMagic.size()) == 0,
          "is not a token file: it does not begin with " + std::string(kMagic));
  const std::uint64_t version = read_number(header + kVersionAt, 4);
  require(version == kVersion, "is a token file of version " + std::to_string(version) +
                                   ", and only version " + std::to_string(kVersion) +
                                   " is known; try to prepare the text again");
  const std::string_view head(reinterpret_cast<const char*>(header), kChecksumAt);
  require(read_number(header + kChecksumAt, 8) == hash_text(head),
          "is damaged: its header has another checksum than it says");
  // A header with a valid checksum may still be malicious.
  const std::uint64_t vocabulary = read_number(header + kVocabularyAt, 8),
                      size = read_number(header + kSizeAt, 8), id_bytes = read_number(header + kIdBytesAt, 4);
  require(vocabulary >= 1 && vocabulary <= kMostVocabulary,
          "is damaged: its header claims " + std::to_string(vocabulary) + " different ids");
  require(read_number(header + kZerosAt, 8) == 0 && read_number(header + kZerosAt + 8, 8) == 0,
          "is damaged: its header uses bytes that are set aside");
  vocabulary_ = static_cast<Index>(vocabulary);
  id_bytes_ = bytes_of_id(vocabulary_);
  require(id_bytes == static_cast<std::uint64_t>(id_bytes_),
          "is damaged: ids below " + std::to_string(vocabulary) + " take " + number_of(id_bytes_, "byte") +
              " each, its header says " + std::to_string(id_bytes));
  require(
      (bytes - kHeader) % id_bytes_ == 0 && size == static_cast<std::uint64_t>((bytes - kHeader) / id_bytes_),
      "is damaged: its header claims " + number_of(size, "id") + " of " + number_of(id_bytes_, "byte") +
          ", but " + number_of(bytes - kHeader, "byte") + " follow it");
  size_ = static_cast<Index>(size);
  fingerprint_ = read_number(header + kFingerprintAt, 8);
}

void TokenFile::read(Index first, Index count, std::int32_t* to) const {
  if (first < 0 || count < 0 || count > size_ || first > size_ - count) {
    throw DataError(path_, 0, "holds " + number_of(size_, "id") + "; asked for " + range_text(first, count));
  }
  unsigned char bytes[kPiece];
  const Index most = kPiece / id_bytes_;
  std::uint32_t largest = 0;
  for (Index done = 0; done < count; done += most) {
    const Index ids = std::min(most, count - done), wanted = ids * id_bytes_;
    const Index found =
        pread(*file_, bytes, static_cast<std::size_t>(wanted), kHeader + (first + done) * id_bytes_);
    if (found < 0) throw DataError(path_, 0, "cannot be read: " + system_error_text(errno));
    if (found < wanted) throw DataError(path_, 0, "has become shorter while it was read");
    for (Index i = 0; i < ids; ++i) {
      const unsigned char* const from = bytes + i * id_bytes_;
      const auto id =
          static_cast<std::uint32_t>(id_bytes_ == 2 ? read_number(from, 2) : read_number(from, 4));
      largest = std::max(largest, id);
      to[done + i] = static_cast<std::int32_t>(id);
    }
  }
  if (largest >= static_cast<std::uint32_t>(vocabulary_)) {
    throw DataError(path_, 0,
                    "is damaged: among " + range_text(first, count) + " is " + std::to_string(largest) +
                        ", not below the vocabulary of " + std::to_string(vocabulary_));
  }
}

TokenFileWriter::TokenFileWriter(const std::string& path, Index vocabulary, std::uint64_t fingerprint)
    : path_(path), vocabulary_(vocabulary), fingerprint_(fingerprint) {
  if (vocabulary < 1 || vocabulary > kMostVocabulary) {
    throw DataError(path, 0, "a vocabulary has 1 to 2147483647 ids; got " + std::to_string(vocabulary));
  }
  file_ = std::make_unique<AtomicFile<>>(path);
  file_->append(std::string(kHeader, '\0'));  // no token file until it is finished
}

void TokenFileWriter::append(const std::int32_t* ids, Index count) {
  const Index id_bytes = bytes_of_id(vocabulary_);
  bytes_.clear();
  for (Index i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary_) {
      throw DataError(path_, 0,
                      "an id is below the vocabulary of " + std::to_string(vocabulary_) + "; got " +
                          std::to_string(ids[i]));
    }
    write_number(bytes_, static_cast<std::uint32_t>(ids[i]), id_bytes);
  }
  file_->append(bytes_);
  size_ += count;
}

void TokenFileWriter::finish() {
  file_->replace_head(header_of(vocabulary_, size_, fingerprint_));
  file_->finish();
}

}  // namespace tapeformer
