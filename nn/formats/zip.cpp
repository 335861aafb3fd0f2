#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/little_endian.h>
#include <tapeformer/nn/formats/zip.h>

#include <algorithm>

namespace tapeformer {
namespace {

// The sizes of records, without names.
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kMostComment = 0xffff;
// Before the end of an archive above 4 GiB: a record with wide numbers, and one with its offset.
constexpr std::size_t kWideEndBytes = 56, kLocatorBytes = 20;
constexpr std::string_view kWideEnd = "PK\6\6", kLocator = "PK\6\7";
constexpr std::uint64_t kIsWide = 0xffffffff;  // in place of a number that needs 64 bits
constexpr std::uint16_t kWideField = 1;

std::string record_at(const OpenedFile<CheckpointError>& archive, std::uint64_t at, std::size_t bytes,
                      std::string_view mark) {
  std::string record = bytes_at(archive, at, bytes);
  if (record.compare(0, mark.size(), mark) != 0) throw CheckpointError("is damaged");
  return record;
}

/// Replaces those of `numbers` that need 64 bits by the ones in the extra fields of a directory record.
void read_wide(const std::string& extra, std::initializer_list<std::uint64_t*> numbers) {
  for (std::size_t at = 0; at + 4 <= extra.size(); at += 4 + number_at<std::uint16_t>(extra, at + 2)) {
    if (number_at<std::uint16_t>(extra, at) != kWideField) continue;
    std::size_t from = at + 4;
    for (std::uint64_t* number : numbers) {
      if (*number != kIsWide) continue;
      if (from + sizeof *number > extra.size()) throw CheckpointError("is damaged");
      *number = number_at<std::uint64_t>(extra, from);
      from += sizeof *number;
    }
  }
}

}  // namespace

std::string bytes_at(const OpenedFile<CheckpointError>& file, std::uint64_t at, std::uint64_t count) {
  if (at > file.size() || count > file.size() - at) throw CheckpointError("is cut short");
  std::string bytes(count, '\0');
  file.read(at, count, bytes.data());
  return bytes;
}

std::uint32_t zip_sum(std::string_view bytes) {
  constexpr std::uint32_t kRemainders[] = {
      0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
      0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  std::uint32_t sum = ~0u;
  for (const char c : bytes) {
    sum ^= static_cast<unsigned char>(c);
    for (int half = 0; half < 2; ++half) sum = kRemainders[sum & 15] ^ sum >> 4;
  }
  return ~sum;
}

std::vector<ZipEntry> zip_entries(const OpenedFile<CheckpointError>& archive) {
  const auto tail = std::min<std::uint64_t>(archive.size(), kLocatorBytes + kEndBytes + kMostComment);
  const std::string last = bytes_at(archive, archive.size() - tail, tail);
  const std::size_t end = last.rfind(kZipEnd);
  if (end == last.npos || last.size() - end < kEndBytes) throw CheckpointError("is not a whole archive");
  std::uint64_t at = number_at<std::uint32_t>(last, end + 16),
                left = number_at<std::uint16_t>(last, end + 10);
  if (end >= kLocatorBytes && last.compare(end - kLocatorBytes, kLocator.size(), kLocator) == 0) {
    const auto wide_at = number_at<std::uint64_t>(last, end - kLocatorBytes + 8);
    const std::string wide = record_at(archive, wide_at, kWideEndBytes, kWideEnd);
    left = number_at<std::uint64_t>(wide, 32), at = number_at<std::uint64_t>(wide, 48);
  }
  std::vector<ZipEntry> entries;
  for (; left > 0; --left) {
    const std::string record = record_at(archive, at, kCentralBytes, kZipCentral);
    const auto name_bytes = number_at<std::uint16_t>(record, 28),
               extra_bytes = number_at<std::uint16_t>(record, 30);
    std::string name = bytes_at(archive, at + kCentralBytes, name_bytes);
    std::uint64_t bytes = number_at<std::uint32_t>(record, 24), stored = number_at<std::uint32_t>(record, 20),
                  local_at = number_at<std::uint32_t>(record, 42);
    read_wide(bytes_at(archive, at + kCentralBytes + name_bytes, extra_bytes), {&bytes, &stored, &local_at});
    at += kCentralBytes + name_bytes + extra_bytes + number_at<std::uint16_t>(record, 32);
    if (number_at<std::uint16_t>(record, 10) != 0)
      throw CheckpointError(format("'{}' is compressed; try saving it uncompressed", name));
    const std::string local = record_at(archive, local_at, kLocalBytes, kZipLocal);
    const std::uint64_t content =
        local_at + kLocalBytes + number_at<std::uint16_t>(local, 26) + number_at<std::uint16_t>(local, 28);
    if (content > archive.size() || bytes > archive.size() - content)
      throw CheckpointError(format("'{}' is cut short", name));
    entries.push_back({std::move(name), content, bytes, number_at<std::uint32_t>(record, 16)});
  }
  return entries;
}

}  // namespace tapeformer
