#pragma once

#include <tapeformer/autograd/system/file.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Archives without compression, as numpy.savez and torch.save write them.
namespace tapeformer {

constexpr std::uint64_t kMostZipBytes = 0xffffffff;
// What the records of an archive begin with: before a file, in the directory, and at the end.
constexpr std::string_view kZipLocal = "PK\3\4", kZipCentral = "PK\1\2", kZipEnd = "PK\5\6";

/// A file in an archive.
struct ZipEntry {
  std::string name;
  std::uint64_t at, bytes;  ///< of its content, in the archive
  std::uint32_t sum;        ///< of its content, by zip_sum()
};

/// The checksum of a zip archive, CRC-32.
std::uint32_t zip_sum(std::string_view bytes);

/// The entries that the directory at the end of the archive lists, in its order. Their sums are not checked.
/// Throws:  CheckpointError naming the entry that is compressed or damaged, not the archive
/// Source:  PKWARE's APPNOTE.TXT
std::vector<ZipEntry> zip_entries(const OpenedFile<CheckpointError>& archive);

/// The bytes [at, at + count) of a file. Throws: CheckpointError if it has fewer
std::string bytes_at(const OpenedFile<CheckpointError>& file, std::uint64_t at, std::uint64_t count);

}  // namespace tapeformer
