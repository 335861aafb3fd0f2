#include <tapeformer/nn/formats/little_endian.h>
#include <tapeformer/nn/formats/zip.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

template <class Number>
void put_all(std::string& bytes, std::initializer_list<std::uint64_t> numbers) {
  for (const std::uint64_t number : numbers) put(bytes, static_cast<Number>(number));
}

/// Writes an archive with "abc" in a file after 5 GiB, which take no space, and a comment.
void write_wide_archive(const std::string& path, std::uint64_t field_bytes) {
  constexpr std::uint64_t kLocalAt = 5ull << 30, kDirectoryAt = kLocalAt + 36;
  const std::string name = "big", content = "abc", comment = "made by hand";
  std::string shared;  // from the version to the sizes
  put_all<std::uint16_t>(shared, {45, 0, 0, 0, 0x21});
  put_all<std::uint32_t>(shared, {zip_sum(content), content.size(), content.size()});
  std::string bytes = std::string(kZipLocal) + shared;
  put_all<std::uint16_t>(bytes, {name.size(), 0});
  bytes += name + content + std::string(kZipCentral).append("\55\0", 2) + shared;
  put_all<std::uint16_t>(bytes, {name.size(), field_bytes, 0, 0, 0, 0, 0});
  put_all<std::uint32_t>(bytes, {0xffffffff});
  bytes += name;
  put_all<std::uint16_t>(bytes, {7, 2, 0, 1, 8});  // a field of another kind first
  put_all<std::uint64_t>(bytes, {kLocalAt});
  const std::uint64_t directory_bytes = bytes.size() - 36;
  bytes += "PK\6\6";
  put_all<std::uint64_t>(bytes, {44});
  put_all<std::uint32_t>(bytes, {45 << 16 | 45, 0, 0});
  put_all<std::uint64_t>(bytes, {1, 1, directory_bytes, kDirectoryAt});
  bytes += "PK\6\7";
  put_all<std::uint32_t>(bytes, {0});
  put_all<std::uint64_t>(bytes, {kDirectoryAt + directory_bytes});
  put_all<std::uint32_t>(bytes, {1});
  bytes += kZipEnd;
  put_all<std::uint16_t>(bytes, {0, 0, 1, 1});
  put_all<std::uint32_t>(bytes, {directory_bytes, 0xffffffff});
  put_all<std::uint16_t>(bytes, {comment.size()});
  std::ofstream file(path, std::ios::binary);
  file.seekp(static_cast<std::streamoff>(kLocalAt));
  file << bytes << comment;
}

}  // namespace

TEST_CASE("the checksum is CRC-32") {
  CHECK(zip_sum("") == 0);
  CHECK(zip_sum("123456789") == 0xcbf43926);  // the check value of its definition
}

TEST_CASE("the entries of an archive are found, and their contents are checked against their sums") {
  const OpenedFile<CheckpointError> archive(TAPEFORMER_SOURCE_DIR "/tests/golden/torch_archive.bin");
  const std::vector<ZipEntry> entries = zip_entries(archive);
  REQUIRE(entries.size() > 10);
  CHECK(entries[0].name == "torch_archive/data.pkl");
  for (const ZipEntry& entry : entries) CHECK(zip_sum(bytes_at(archive, entry.at, entry.bytes)) == entry.sum);
  CHECK(message_of<CheckpointError>([&] { bytes_at(archive, 1, archive.size()); }) == "is cut short");
}

TEST_CASE_FIXTURE(InFolder, "an archive above 4 GiB is read") {
  const std::string path = folder.file("wide.zip");
  write_wide_archive(path, 18);
  const OpenedFile<CheckpointError> archive(path);
  const std::vector<ZipEntry> entries = zip_entries(archive);
  REQUIRE(entries.size() == 1);
  CHECK(entries[0].name == "big");
  CHECK(bytes_at(archive, entries[0].at, entries[0].bytes) == "abc");
  write_wide_archive(path, 17);
  const OpenedFile<CheckpointError> damaged(path);
  CHECK(message_of<CheckpointError>([&] { zip_entries(damaged); }) == "is damaged");
}
