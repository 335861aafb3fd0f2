#include <doctest/doctest.h>
#include <sys/stat.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/tests/data/written_tokens.h>
#include <tapeformer/tests/nn/formats/file_size_limit.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

#include <algorithm>

using namespace tapeformer;

namespace {

std::string little_endian(std::uint64_t number, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i) & 0xff);
  return text;
}

/// A token file put together by hand, with right checksums.
std::string file_of(std::uint64_t version, std::uint64_t id_bytes, std::uint64_t vocabulary,
                    std::uint64_t size, const std::string& ids) {
  const std::string header =
      "TAPETOKS" + little_endian(version, 4) + little_endian(id_bytes, 4) + little_endian(vocabulary, 8) +
      little_endian(size, 8) + little_endian(0x1122334455667788, 8) +
      little_endian(version == 1 ? 0 : checksum(ids.data(), ids.size()), 8) + std::string(8, '\0');
  return header + little_endian(hash_text(header), 8) + ids;
}

/// Opening a file of `bytes` fails with the message `what`.
void check_refused(const std::string& bytes, const std::string& what) {
  const TemporaryFolder folder;
  const std::string path = folder.file("tokens");
  write_bytes(path, bytes);
  CHECK_THROWS_WITH_AS(TokenFile::open(path), (path + ": " + what).c_str(), DataError);
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "a file of three ids, byte by byte") {
  const std::string path = folder.file("tokens");
  write_tokens(path, 65536, {1, 65535, 258}, 0x1122334455667788);
  CHECK(read_bytes(path) == file_of(2, 2, 65536, 3, {"\x01\x00\xff\xff\x02\x01", 6}));
  write_tokens(path, 65537, {1, 65536, 258}, 0x1122334455667788);
  CHECK(read_bytes(path) == file_of(2, 4, 65537, 3, {"\x01\0\0\0\0\0\x01\0\x02\x01\0\0", 12}));
  CHECK(ids_in(write_tokens(path, 10, {})).empty());
}

TEST_CASE_FIXTURE(InFolder, "ids are read as they were written, in whatever pieces, from any place") {
  const std::string path = folder.file("tokens");
  for (const Index vocabulary : {1000, 65536, 65537, 2147483647}) {
    CAPTURE(vocabulary);
    Ids ids(1'500'001);  // more than is read at a time
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>(
          bounded(mix_bits(test_seed(5), i), static_cast<std::uint64_t>(vocabulary)));
    }
    ids[3] = static_cast<std::int32_t>(vocabulary - 1);
    TokenFileWriter writer(path, vocabulary, 0x1122334455667788);
    writer.append({});
    for (std::size_t first = 0, count = 1; first < ids.size(); first += count, count = count * 3 + 1) {
      count = std::min(count, ids.size() - first);
      const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(first);
      writer.append({begin, begin + static_cast<std::ptrdiff_t>(count)});
    }
    writer.finish();
    CHECK(folder.count() == 1);
    const std::string whole = read_bytes(path);
    CHECK(
        (whole == file_of(2, vocabulary > 65536 ? 4 : 2, static_cast<std::uint64_t>(vocabulary), ids.size(),
                          whole.substr(64))));  // with the checksum of all ids, in whatever pieces they come
    const TokenFile file = TokenFile::open(path);
    CHECK(file.size() == static_cast<Index>(ids.size()));
    CHECK(file.vocabulary() == vocabulary);
    CHECK(file.fingerprint() == 0x1122334455667788);
    CHECK(file.path() == path);
    CHECK(ids_in(file) == ids);
    for (const Index first : {0, 1, 2015, 2016, 2017, 4095, 4096, 1'499'990}) {
      Ids window(11);
      file.read(first, 11, window.data());
      CHECK(window == Ids(ids.begin() + first, ids.begin() + first + 11));
    }
  }
}

TEST_CASE_FIXTURE(InFolder, "reading is refused where there are no ids") {
  const std::string path = folder.file("tokens");
  const TokenFile file = write_tokens(path, 10, {1, 2, 3});
  std::int32_t id = 0;
  CHECK_THROWS_WITH_AS(file.read(3, 1, &id), (path + ": holds 3 ids; asked for 1 id from 3").c_str(),
                       DataError);
  constexpr Index kLargest = std::numeric_limits<Index>::max();
  for (const auto& [first, count] :
       {std::pair<Index, Index>(-1, 1), {0, -1}, {0, 4}, {kLargest, 1}, {1, kLargest}})
    CHECK_THROWS_AS(file.read(first, count, &id), DataError);
  CHECK_NOTHROW(file.read(3, 0, &id));
  file.read(2, 1, &id);
  CHECK(id == 3);
}

TEST_CASE("other files than token files are refused") {
  const std::string whole = file_of(2, 2, 10, 2, {4, '\0'});
  check_refused("", "is not a token file: it has 0 bytes");
  check_refused(whole.substr(0, 63), "is not a token file: it has 63 bytes");
  check_refused("tapetoks" + whole.substr(8), "is not a token file: it does not begin with TAPETOKS");
  check_refused(
      file_of(3, 2, 10, 0, ""),
      "is a token file of version 3, but only versions 1 to 2 are known; try preparing the text again");
}

TEST_CASE("a flipped bit in any byte is noticed when the file is checked") {
  const TemporaryFolder folder;
  const std::string path = folder.file("tokens");
  for (const Index vocabulary : {300, 70'000}) {
    TokenFileWriter writer(path, vocabulary, 7);
    for (const Ids& ids : {Ids{1, 2, 3}, Ids{4}, Ids{299, 0, 7, 7, 9}}) writer.append(ids);
    writer.finish();
    const std::string whole = read_bytes(path);
    CHECK_NOTHROW(TokenFile::open(path).check());
    for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
      CAPTURE(bit);
      std::string flipped = whole;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
      write_bytes(path, flipped);
      CHECK_THROWS_AS(TokenFile::open(path).check(), DataError);
    }
  }
}

TEST_CASE_FIXTURE(InFolder, "a file of version 1 has no checksum of its ids, and is read without it") {
  const std::string path = folder.file("tokens");
  write_bytes(path, file_of(1, 2, 65536, 3, {"\x01\x00\xff\xff\x02\x01", 6}));
  const TokenFile file = TokenFile::open(path);
  CHECK_NOTHROW(file.check());
  CHECK(ids_in(file) == Ids{1, 65535, 258});
}

TEST_CASE("a header that contradicts itself or the file's length is refused, though its checksum is right") {
  const auto message = [](const char* ids, const char* id_bytes, const char* vocabulary, const char* follow) {
    return format("is damaged: its header says {} ids of {} bytes below {}, and {} bytes follow it", ids,
                  id_bytes, vocabulary, follow);
  };
  check_refused(file_of(2, 2, 0, 1, {0, 0}), message("1", "2", "0", "2"));
  check_refused(file_of(2, 4, std::uint64_t{1} << 31, 0, ""), message("0", "4", "2147483648", "0"));
  check_refused(file_of(2, 4, 10, 1, std::string(4, '\0')), message("1", "4", "10", "4"));
  check_refused(file_of(2, 0, 10, 1, std::string(4, '\0')), message("1", "0", "10", "4"));
  check_refused(file_of(2, 2, 65537, 2, std::string(4, '\0')), message("2", "2", "65537", "4"));
  check_refused(file_of(2, 2, 10, 3, std::string(5, '\0')), message("3", "2", "10", "5"));  // cut in an id
  check_refused(file_of(2, 2, 10, 3, std::string(4, '\0')), message("3", "2", "10", "4"));  // between ids
  check_refused(file_of(2, 2, 10, 3, std::string(7, '\0')), message("3", "2", "10", "7"));
  // Sizes whose bytes would overflow to those of the file.
  for (const std::uint64_t size : {std::uint64_t{1} << 63, ~std::uint64_t{0}})
    check_refused(file_of(2, 2, 10, size, ""), message(std::to_string(size).c_str(), "2", "10", "0"));
}

TEST_CASE_FIXTURE(InFolder, "an id outside the vocabulary is refused when it is read") {
  const std::string path = folder.file("tokens");
  write_bytes(path, file_of(2, 2, 10, 3, {9, 0, 10, 0, 1, 0}));
  const TokenFile file = TokenFile::open(path);
  Ids ids(3);
  CHECK_NOTHROW(file.read(0, 1, ids.data()));
  CHECK_THROWS_WITH_AS(
      file.read(0, 3, ids.data()),
      (path + ": is damaged: among 3 ids from 0 is 10, not below the vocabulary of 10").c_str(), DataError);
  write_bytes(path, file_of(2, 4, 70'000, 1, "\xff\xff\xff\xff"));
  CHECK_THROWS_WITH_AS(
      TokenFile::open(path).read(0, 1, ids.data()),
      (path + ": is damaged: among 1 id from 0 is 4294967295, not below the vocabulary of 70000").c_str(),
      DataError);
}

TEST_CASE_FIXTURE(InFolder, "a file that its writer did not finish is not a token file") {
  const std::string path = folder.file("tokens");
  TokenFileWriter writer(path, 10, 7);
  writer.append(Ids(1'000'000, 3));
  CHECK_THROWS_WITH_AS(TokenFile::open(path + ".partial"),
                       (path + ".partial: is not a token file: it does not begin with TAPETOKS").c_str(),
                       DataError);
}

TEST_CASE_FIXTURE(InFolder, "a full disk is reported, and nothing is left") {
  const std::string path = folder.file("tokens"), message = path + ": cannot be written: File too large";
  const FileSizeLimit limit(1 << 16);
  TokenFileWriter writer(path, 10, 7);
  CHECK_THROWS_WITH_AS(writer.append(Ids(1'000'000, 3)), message.c_str(), DataError);
  TokenFileWriter small(path, 10, 7);
  small.append(Ids(100'000, 3));
  CHECK_THROWS_WITH_AS(small.finish(), message.c_str(), DataError);
  CHECK(folder.count() == 0);
}
