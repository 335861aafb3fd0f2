#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/little_endian.h>
#include <tapeformer/data/token_file.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

namespace tapeformer {
namespace {

constexpr std::string_view kMagic = "TAPETOKS";
constexpr std::uint64_t kVersion = 2, kVersionWithoutSum = 1;
constexpr Index kHeaderBytes = 64;
constexpr Index kVersionAt = 8, kIdBytesAt = 12, kVocabularyAt = 16, kSizeAt = 24, kFingerprintAt = 32,
                kIdsChecksumAt = 40, kZerosAt = 48, kChecksumAt = 56;
constexpr Index kMostVocabulary = std::numeric_limits<std::int32_t>::max();
constexpr Index kBytesRead = 1 << 16;  // bytes that are read at a time
constexpr std::size_t kWord = 8;       // of a checksum, in bytes

Index bytes_of_id(Index vocabulary) { return vocabulary <= 1 << 16 ? 2 : 4; }

std::string header_of(Index vocabulary, Index size, std::uint64_t fingerprint, std::uint64_t checksum) {
  std::string header(kMagic);
  write_little_endian(header, kVersion, 4);
  write_little_endian(header, static_cast<std::uint64_t>(bytes_of_id(vocabulary)), 4);
  write_little_endian(header, static_cast<std::uint64_t>(vocabulary), 8);
  write_little_endian(header, static_cast<std::uint64_t>(size), 8);
  write_little_endian(header, fingerprint, 8);
  write_little_endian(header, checksum, 8);
  write_little_endian(header, 0, 8);
  write_little_endian(header, hash_text(header), 8);
  return header;
}

std::string range_text(Index first, Index count) {
  return number_of(count, "id") + " from " + std::to_string(first);
}

}  // namespace

TokenFile TokenFile::open(const std::string& path) {
  TokenFile opened(path);
  if (opened.file_.size() < kHeaderBytes) {
    throw DataError(path, 0,
                    "is not a token file: it has " + number_of(opened.file_.size(), "byte") +
                        ", and the header alone takes " + std::to_string(kHeaderBytes));
  }
  unsigned char header[kHeaderBytes];
  opened.file_.read(0, kHeaderBytes, header);
  opened.parse(header);
  return opened;
}

void TokenFile::parse(const unsigned char* header) {
  const Index bytes = static_cast<Index>(file_.size());
  const auto require = [this](bool holds, const std::string& problem) {
    if (!holds) throw DataError(path(), 0, problem);
  };
  require(std::memcmp(header, kMagic.data(), kMagic.size()) == 0,
          "is not a token file: it does not begin with " + std::string(kMagic));
  const std::uint64_t version = read_little_endian(header + kVersionAt, 4);
  require(version == kVersion || version == kVersionWithoutSum,
          "is a token file of version " + std::to_string(version) + ", and versions 1 to " +
              std::to_string(kVersion) + " are known; try to prepare the text again");
  const std::string_view head(reinterpret_cast<const char*>(header), kChecksumAt);
  require(read_little_endian(header + kChecksumAt, 8) == hash_text(head),
          "is damaged: its header has another checksum than it says");
  // A header with a valid checksum may still be malicious.
  const std::uint64_t vocabulary = read_little_endian(header + kVocabularyAt, 8),
                      size = read_little_endian(header + kSizeAt, 8),
                      id_bytes = read_little_endian(header + kIdBytesAt, 4);
  require(vocabulary >= 1 && vocabulary <= kMostVocabulary,
          "is damaged: its header claims " + std::to_string(vocabulary) + " different ids");
  const std::uint64_t ids_checksum = read_little_endian(header + kIdsChecksumAt, 8);
  if (version != kVersionWithoutSum) checksum_ = ids_checksum;
  require(read_little_endian(header + kZerosAt, 8) == 0 && (checksum_ || ids_checksum == 0),
          "is damaged: its header uses bytes that are set aside");
  vocabulary_ = static_cast<Index>(vocabulary);
  id_bytes_ = bytes_of_id(vocabulary_);
  require(id_bytes == static_cast<std::uint64_t>(id_bytes_),
          "is damaged: ids below " + std::to_string(vocabulary) + " take " + number_of(id_bytes_, "byte") +
              " each, its header says " + std::to_string(id_bytes));
  require((bytes - kHeaderBytes) % id_bytes_ == 0 &&
              size == static_cast<std::uint64_t>((bytes - kHeaderBytes) / id_bytes_),
          "is damaged: its header claims " + number_of(size, "id") + " of " + number_of(id_bytes_, "byte") +
              ", but " + number_of(bytes - kHeaderBytes, "byte") + " follow it");
  size_ = static_cast<Index>(size);
  fingerprint_ = read_little_endian(header + kFingerprintAt, 8);
}

void TokenFile::read(Index first, Index count, std::int32_t* to) const {
  if (first < 0 || count < 0 || count > size_ || first > size_ - count) {
    throw DataError(path(), 0, "holds " + number_of(size_, "id") + "; asked for " + range_text(first, count));
  }
  unsigned char bytes[kBytesRead];
  const Index most = kBytesRead / id_bytes_;
  std::uint32_t largest = 0;
  for (Index done = 0; done < count; done += most) {
    const Index ids = std::min(most, count - done), wanted = ids * id_bytes_;
    file_.read(static_cast<std::uint64_t>(kHeaderBytes + (first + done) * id_bytes_),
               static_cast<std::size_t>(wanted), bytes);
    for (Index i = 0; i < ids; ++i) {
      const unsigned char* const from = bytes + i * id_bytes_;
      const auto id = static_cast<std::uint32_t>(id_bytes_ == 2 ? read_little_endian(from, 2)
                                                                : read_little_endian(from, 4));
      largest = std::max(largest, id);
      to[done + i] = static_cast<std::int32_t>(id);
    }
  }
  if (largest >= static_cast<std::uint32_t>(vocabulary_)) {
    throw DataError(path(), 0,
                    "is damaged: among " + range_text(first, count) + " is " + std::to_string(largest) +
                        ", not below the vocabulary of " + std::to_string(vocabulary_));
  }
}

TokenFile TokenFile::with_answers() const {
  const std::filesystem::path marks = std::filesystem::path(path()).replace_extension(".answers");
  if (!std::filesystem::exists(marks))
    throw DataError(path(), 0, "does not say which tokens are answers; try prepare --loss-on answers");
  TokenFile result = *this;
  result.answers_ = std::make_shared<const TokenFile>(open(marks));
  result.answers_->check();
  if (result.answers_->size() != size_)
    throw DataError(
        marks, 0,
        "has marks for " + number_of(result.answers_->size(), "token") + " of " + std::to_string(size_));
  return result;
}

void TokenFile::ignore_prompts(Index first, Index count, std::int32_t* ids) const {
  if (answers_ == nullptr) return;
  std::vector<std::int32_t> is_answer(static_cast<std::size_t>(count));
  answers_->read(first, count, is_answer.data());
  for (std::size_t i = 0; i < is_answer.size(); ++i)
    if (is_answer[i] == 0) ids[i] = -1;
}

void TokenFile::check() const {
  if (!checksum_) return;
  unsigned char bytes[kBytesRead];
  const Index end = size_ * id_bytes_;
  std::uint64_t sum = 0;
  for (Index at = 0; at < end; at += kBytesRead) {
    const auto count = static_cast<std::size_t>(std::min(kBytesRead, end - at));
    file_.read(static_cast<std::uint64_t>(kHeaderBytes + at), count, bytes);
    sum = checksum(bytes, count, sum);
  }
  if (sum != *checksum_) {
    throw DataError(path(), 0,
                    "is damaged: its ids have another checksum than its header says; try to prepare the text "
                    "again");
  }
}

TokenFileWriter::TokenFileWriter(const std::string& path, Index vocabulary, std::uint64_t fingerprint,
                                 const std::string& shown)
    : path_(shown.empty() ? path : shown), vocabulary_(vocabulary), fingerprint_(fingerprint) {
  if (vocabulary < 1 || vocabulary > kMostVocabulary) {
    throw DataError(path_, 0, "a vocabulary has 1 to 2147483647 ids; got " + std::to_string(vocabulary));
  }
  file_ = std::make_unique<AtomicFile<>>(path, path_);
  file_->append(std::string(kHeaderBytes, '\0'));  // no token file until it is finished
}

void TokenFileWriter::append(const std::int32_t* ids, Index count) {
  for (Index i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary_) {
      throw DataError(path_, 0,
                      "an id is below the vocabulary of " + std::to_string(vocabulary_) + "; got " +
                          std::to_string(ids[i]));
    }
  }
  const Index id_bytes = bytes_of_id(vocabulary_);
  for (Index i = 0; i < count; ++i) write_little_endian(bytes_, static_cast<std::uint32_t>(ids[i]), id_bytes);
  size_ += count;
  write(bytes_.size() / kWord * kWord);
}

/// Writes the first of the encoded bytes.
void TokenFileWriter::write(std::size_t bytes) {
  checksum_ = checksum(bytes_.data(), bytes, checksum_);
  file_->append(std::string_view(bytes_).substr(0, bytes));
  bytes_.erase(0, bytes);
}

void TokenFileWriter::finish() {
  write(bytes_.size());
  file_->replace_head(header_of(vocabulary_, size_, fingerprint_, checksum_));
  file_->finish();
}

}  // namespace tapeformer
