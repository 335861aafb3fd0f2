#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/token_file.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <limits>

namespace tapeformer {
namespace {

constexpr std::array<char, 8> kMagic{'T', 'A', 'P', 'E', 'T', 'O', 'K', 'S'};
constexpr std::uint32_t kVersion = 2, kVersionWithoutSum = 1;
constexpr std::uint64_t kMostVocabulary = std::numeric_limits<std::int32_t>::max();
constexpr Index kPiece = 1 << 15;  // ids, or words of a checksum, per read
constexpr std::size_t kWord = 8;   // bytes per word of a checksum

/// The first bytes of a file, which is little-endian, as is every supported machine.
struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion, id_bytes;
  std::uint64_t vocabulary, size, fingerprint, ids_checksum, zeros = 0, checksum = 0;

  std::string_view bytes() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
  std::uint64_t own_checksum() const { return hash_text(bytes().substr(0, offsetof(Header, checksum))); }
};
static_assert(sizeof(Header) == 64);

std::uint32_t bytes_of_id(std::uint64_t vocabulary) { return vocabulary <= 1 << 16 ? 2 : 4; }

}  // namespace

void read_ids(const OpenedFile<>& file, std::uint64_t from, Index id_bytes, Index count, std::int32_t* to) {
  if (id_bytes == 4) return file.read(from, static_cast<std::size_t>(4 * count), to);
  std::uint16_t piece[kPiece];
  for (Index done = 0; done < count; done += kPiece) {
    const Index ids = std::min(kPiece, count - done);
    file.read(from + static_cast<std::uint64_t>(2 * done), static_cast<std::size_t>(2 * ids), piece);
    std::copy(piece, piece + ids, to + done);
  }
}

TokenFile TokenFile::open(const std::string& path) {
  TokenFile opened(path);
  const auto require = [&](bool holds, const std::string& problem) {
    if (!holds) throw DataError(path, 0, problem);
  };
  const std::uint64_t bytes = opened.file_.size();
  require(bytes >= sizeof(Header), "is not a token file: it has " + number_of(bytes, "byte"));
  Header header;
  opened.file_.read(0, sizeof header, &header);
  require(header.magic == kMagic, "is not a token file: it does not begin with TAPETOKS");
  require(
      header.version == kVersion || header.version == kVersionWithoutSum,
      format(
          "is a token file of version {}, but only versions 1 to {} are known; try preparing the text again",
          header.version, kVersion));
  require(header.checksum == header.own_checksum(), "is damaged: its header does not match its checksum");
  // A header with a valid checksum may still be malicious.
  const std::uint64_t of_ids = bytes - sizeof header;
  require(header.vocabulary >= 1 && header.vocabulary <= kMostVocabulary &&
              header.id_bytes == bytes_of_id(header.vocabulary) && of_ids % header.id_bytes == 0 &&
              header.size == of_ids / header.id_bytes,
          format("is damaged: its header says {} ids of {} bytes below {}, and {} bytes follow it",
                 header.size, header.id_bytes, header.vocabulary, of_ids));
  opened.vocabulary_ = static_cast<Index>(header.vocabulary);
  opened.id_bytes_ = header.id_bytes;
  opened.size_ = static_cast<Index>(header.size);
  opened.fingerprint_ = header.fingerprint;
  if (header.version != kVersionWithoutSum) opened.checksum_ = header.ids_checksum;
  return opened;
}

void TokenFile::read(Index first, Index count, std::int32_t* to) const {
  if (first < 0 || count < 0 || count > size_ || first > size_ - count)
    throw DataError(
        path(), 0,
        format("holds {}; asked for {} from {}", number_of(size_, "id"), number_of(count, "id"), first));
  read_ids(file_, sizeof(Header) + static_cast<std::uint64_t>(first * id_bytes_), id_bytes_, count, to);
  std::uint32_t largest = 0;
  for (Index i = 0; i < count; ++i) largest = std::max(largest, static_cast<std::uint32_t>(to[i]));
  if (largest >= static_cast<std::uint32_t>(vocabulary_))
    throw DataError(path(), 0,
                    format("is damaged: among {} from {} is {}, not below the vocabulary of {}",
                           number_of(count, "id"), first, largest, vocabulary_));
}

TokenFile TokenFile::with_answers() const {
  const std::filesystem::path marks = std::filesystem::path(path()).replace_extension(".answers");
  if (!std::filesystem::exists(marks))
    throw DataError(path(), 0, "does not say which tokens are answers; try prepare --loss-on answers");
  TokenFile result = *this;
  result.answers_ = std::make_shared<const TokenFile>(open(marks));
  result.answers_->check();
  if (result.answers_->size() != size_)
    throw DataError(marks, 0,
                    format("has marks for {} of {}", number_of(result.answers_->size(), "token"), size_));
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
  std::uint64_t piece[kPiece], sum = 0;
  for (std::uint64_t at = sizeof(Header); at < file_.size(); at += sizeof piece) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(sizeof piece, file_.size() - at));
    file_.read(at, count, piece);
    sum = checksum(piece, count, sum);
  }
  if (sum != *checksum_)
    throw DataError(
        path(), 0,
        "is damaged: its ids do not match the checksum in its header; try preparing the text again");
}

TokenFileWriter::TokenFileWriter(const std::string& path, Index vocabulary, std::uint64_t fingerprint,
                                 const std::string& shown)
    : file_(path, shown), vocabulary_(vocabulary), fingerprint_(fingerprint) {
  file_.append(std::string(sizeof(Header), '\0'));  // not a valid header until the file is finished
}

void TokenFileWriter::append(const std::vector<std::int32_t>& ids) {
  const std::uint32_t id_bytes = bytes_of_id(static_cast<std::uint64_t>(vocabulary_));
  for (const std::int32_t& id : ids) bytes_.append(reinterpret_cast<const char*>(&id), id_bytes);
  size_ += ids.size();
  write(bytes_.size() / kWord * kWord);
}

/// Writes the first `bytes` encoded bytes.
void TokenFileWriter::write(std::size_t bytes) {
  checksum_ = checksum(bytes_.data(), bytes, checksum_);
  file_.append(std::string_view(bytes_).substr(0, bytes));
  bytes_.erase(0, bytes);
}

void TokenFileWriter::finish() {
  write(bytes_.size());
  Header header;
  header.vocabulary = static_cast<std::uint64_t>(vocabulary_);
  header.id_bytes = bytes_of_id(header.vocabulary);
  header.size = size_;
  header.fingerprint = fingerprint_;
  header.ids_checksum = checksum_;
  header.checksum = header.own_checksum();
  file_.replace_head(header.bytes());
  file_.finish();
}

}  // namespace tapeformer
