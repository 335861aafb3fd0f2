#include <tapeformer/nn/formats/zip.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

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
