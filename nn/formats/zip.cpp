#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/little_endian.h>
#include <tapeformer/nn/formats/zip.h>

#include <algorithm>

namespace tapeformer {
namespace {

// The sizes of records, without names.
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kMostComment = 0xffff;

std::string record_at(const OpenedFile<CheckpointError>& archive, std::uint64_t at, std::size_t bytes,
                      std::string_view mark) {
  std::string record = bytes_at(archive, at, bytes);
  if (record.compare(0, mark.size(), mark) != 0) throw CheckpointError("is damaged");
  return record;
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
  if (archive.size() > kMostZipBytes)
    throw CheckpointError("is an archive above 4 GiB, which is not supported");
  const auto tail = std::min<std::uint64_t>(archive.size(), kEndBytes + kMostComment);
  const std::string last = bytes_at(archive, archive.size() - tail, tail);
  const std::size_t end = last.rfind(kZipEnd);
  if (end == last.npos || last.size() - end < kEndBytes) throw CheckpointError("is not a whole archive");
  std::vector<ZipEntry> entries;
  std::uint64_t at = number_at<std::uint32_t>(last, end + 16);
  for (auto left = number_at<std::uint16_t>(last, end + 10); left > 0; --left) {
    const std::string record = record_at(archive, at, kCentralBytes, kZipCentral);
    const auto name_bytes = number_at<std::uint16_t>(record, 28);
    std::string name = bytes_at(archive, at + kCentralBytes, name_bytes);
    at += kCentralBytes + name_bytes + number_at<std::uint16_t>(record, 30) +
          number_at<std::uint16_t>(record, 32);
    if (number_at<std::uint16_t>(record, 10) != 0)
      throw CheckpointError(format("'{}' is compressed; try to save it without", name));
    const auto local_at = number_at<std::uint32_t>(record, 42);
    const std::string local = record_at(archive, local_at, kLocalBytes, kZipLocal);
    const std::uint64_t content = std::uint64_t{local_at} + kLocalBytes +
                                  number_at<std::uint16_t>(local, 26) + number_at<std::uint16_t>(local, 28),
                        bytes = number_at<std::uint32_t>(record, 24);
    if (content > archive.size() || bytes > archive.size() - content)
      throw CheckpointError(format("'{}' is cut short", name));
    entries.push_back({std::move(name), content, bytes, number_at<std::uint32_t>(record, 16)});
  }
  return entries;
}

}  // namespace tapeformer
