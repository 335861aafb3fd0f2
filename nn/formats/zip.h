#pragma once

#include <tapeformer/autograd/system/file.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Archives without compression, as numpy.savez and torch.save write them.
namespace tapeformer {

constexpr std::string_view kZipLocal = "PK\3\4";    ///< begins the record before a file
constexpr std::string_view kZipCentral = "PK\1\2";  ///< begins a record in the directory
constexpr std::string_view kZipEnd = "PK\5\6";      ///< begins the record at the end

/// A file in an archive.
struct ZipEntry {
  std::string name;     ///< its path in the archive
  std::uint64_t at;     ///< the offset of its content in the archive
  std::uint64_t bytes;  ///< the size of its content
  std::uint32_t sum;    ///< zip_sum() of its content
};

/// The checksum of a zip archive, CRC-32.
std::uint32_t zip_sum(std::string_view bytes);

/// The entries that the directory at the end of the archive lists, in its order; sums are not checked.
/// Archives above 4 GiB are read too.
/// Throws:  CheckpointError naming the entry that is compressed or damaged, not the archive
/// Source:  PKWARE's APPNOTE.TXT
std::vector<ZipEntry> zip_entries(const OpenedFile<CheckpointError>& archive);

/// The bytes [at, at + count) of a file. Throws: CheckpointError if it has fewer
std::string bytes_at(const OpenedFile<CheckpointError>& file, std::uint64_t at, std::uint64_t count);

}  // namespace tapeformer
