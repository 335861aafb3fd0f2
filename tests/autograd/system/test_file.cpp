#include <doctest/doctest.h>
#include <sys/stat.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/tests/nn/formats/file_size_limit.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>

using namespace tapeformer;

TEST_CASE_FIXTURE(InFolder, "a file is read whole, and refused if it is missing, a folder or too large") {
  const std::string path = folder.file("t"), none = folder.file("none"), text("a\0b\r\n\xff", 6);
  write_bytes(path, text);
  CHECK(read_file(path, text.size()) == text);
  CHECK(message_of<DataError>([&] { read_file(none); }) ==
        none + ": cannot be opened: No such file or directory");
  CHECK(message_of<CheckpointError>([&] { read_file<CheckpointError>(none); }) ==
        none + ": cannot be opened: No such file or directory");
  CHECK(message_of<DataError>([&] { read_file(folder.file(".")); }) == folder.file(".") + ": is not a file");
  CHECK(message_of<DataError>([&] { read_file(path, 5); }) ==
        path + ": 6 bytes are too many; the limit is 5");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);
  CHECK(message_of<DataError>([&] { read_file(path); }) ==
        path + ": 1099511627776 bytes are too many; the limit is 1073741824");
  write_bytes(path, "");
  CHECK(read_file(path).empty());
}

TEST_CASE("a file is read in parts, and stays what it was though its path is given to another") {
  const TemporaryFolder folder;
  const std::string path = folder.file("t"), none = folder.file("none");
  write_bytes(path, "0123456789");
  const OpenedFile<CheckpointError> file(path), copy = file;
  CHECK(file.path() == path);
  CHECK(file.size() == 10);
  std::string part(4, ' ');
  file.read(3, 4, part.data());
  CHECK(part == "3456");
  file.read(10, 0, nullptr);
  write_atomically(path, "other");
  copy.read(6, 4, part.data());
  CHECK(part == "6789");
  CHECK(message_of<CheckpointError>([&] { file.read(7, 4, part.data()); }) ==
        path + ": became shorter while it was being read");
  CHECK(message_of<DataError>([&] { OpenedFile<>{none}; }) ==
        none + ": cannot be opened: No such file or directory");
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  for (const char* name : {".", "pipe"}) {
    CHECK(message_of<DataError>([&] { OpenedFile<>{folder.file(name)}; }) ==
          folder.file(name) + ": is not a file");
  }
}

TEST_CASE("a checksum changes with any bit, and does not depend on the pieces") {
  const std::string text = "sixteen and three";
  // (sum ^ word) * 0x9e3779b97f4a7c15, sum ^= sum >> 29, for each word of eight bytes
  CHECK(checksum("", 0) == 0);
  CHECK(checksum("\1", 1) == (0x9e3779b97f4a7c15u ^ 0x9e3779b97f4a7c15u >> 29));
  const std::uint64_t whole = checksum(text.data(), text.size());
  CHECK(checksum(text.data() + 8, text.size() - 8, checksum(text.data(), 8)) == whole);
  CHECK(checksum(text.data(), text.size(), 1) != whole);
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    CHECK(checksum(flipped.data(), flipped.size()) != whole);
  }
}

TEST_CASE_FIXTURE(InFolder, "it writes the parts one after the other and replaces what was there") {
  const std::string path = folder.file("config.json");
  write_bytes(path, "something old and longer");
  write_atomically(path, {"one ", {}, "two"});
  CHECK(read_bytes(path) == "one two");
  write_atomically(path, "");
  CHECK(read_bytes(path).empty());
  CHECK(folder.count() == 1);
}

TEST_CASE_FIXTURE(InFolder, "whether a file can be written shows before there is something to write") {
  const std::string path = folder.file("weights"), nowhere = folder.file("no/weights");
  write_bytes(path, "old");
  CHECK_NOTHROW(check_writable(path));
  CHECK_NOTHROW(check_writable(folder.file("new")));
  CHECK(read_bytes(path) == "old");
  CHECK(folder.count() == 1);
  CHECK_THROWS_WITH_AS(check_writable(nowhere),
                       (nowhere + ": cannot be written: No such file or directory").c_str(), CheckpointError);
  CHECK_THROWS_WITH_AS(check_writable("/dev/null"), "/dev/null: cannot be replaced: it is not a regular file",
                       CheckpointError);
}

TEST_CASE_FIXTURE(InFolder, "pieces follow each other, and the file is there once it is finished") {
  const std::string path = folder.file("stream");
  write_bytes(path, "what was there before");
  {
    AtomicFile<> file(path);
    file.append("head ");
    file.append(std::string(3 << 20, 'x'));
    file.append("");
    file.append("y");
    file.replace_head("HEAD");
    file.append("tail");
    CHECK(read_bytes(path) == "what was there before");
    file.finish();
  }
  CHECK(read_bytes(path) == "HEAD " + std::string(3 << 20, 'x') + "ytail");
  CHECK(folder.count() == 1);
}

TEST_CASE_FIXTURE(InFolder, "without an end nothing is left, and what was there stays") {
  const std::string path = folder.file("stream");
  write_bytes(path, "old");
  {
    AtomicFile<> file(path);
    file.append("new");
    file.replace_head("N");
    CHECK(folder.count() == 2);
  }
  CHECK(read_bytes(path) == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE_FIXTURE(InFolder, "of two that write one file at a time, the last to finish counts") {
  const std::string path = folder.file("shared");
  write_bytes(path + ".partial", "the remains of a killed process");
  AtomicFile<> first(path), second(path);
  second.append("second");
  first.append("first");
  first.finish();
  CHECK(read_bytes(path) == "first");
  second.finish();
  CHECK(read_bytes(path) == "second");
  CHECK(folder.count() == 1);
}

TEST_CASE_FIXTURE(InFolder, "when the disk is full, nothing of a file in pieces is left") {
  const std::string path = folder.file("stream");
  write_bytes(path, "old");
  const FileSizeLimit limit(1 << 16);
  const std::string message = path + ": cannot be written: File too large", large(1 << 20, 'x');
  AtomicFile<> at_once(path);
  CHECK_THROWS_WITH_AS(at_once.append(large), message.c_str(), DataError);
  CHECK(folder.count() == 1);
  AtomicFile<> at_the_end(path);
  at_the_end.append(large.substr(0, 100'000));
  CHECK_THROWS_WITH_AS(at_the_end.finish(), message.c_str(), DataError);
  CHECK(folder.count() == 1);
  CHECK(read_bytes(path) == "old");
}

TEST_CASE_FIXTURE(InFolder, "a folder that is not there, a folder and a device are refused") {
  const std::string path = folder.file("no/stream"), taken = folder.file("taken");
  std::filesystem::create_directory(taken);
  CHECK_THROWS_WITH_AS(AtomicFile<>{path}, (path + ": cannot be written: No such file or directory").c_str(),
                       DataError);
  CHECK_THROWS_WITH_AS(AtomicFile<>{taken},
                       (taken + ": cannot be replaced: it is not a regular file").c_str(), DataError);
  CHECK_THROWS_WITH_AS(AtomicFile<>{"/dev/null"}, "/dev/null: cannot be replaced: it is not a regular file",
                       DataError);
  CHECK_THROWS_WITH_AS(sync_to_disk(path), (path + ": cannot be written: No such file or directory").c_str(),
                       DataError);
  CHECK(folder.count() == 1);
}

TEST_CASE_FIXTURE(InFolder, "lines are appended to a file that may not be there yet") {
  const std::string path = folder.file("lines"), none = folder.file("no/lines");
  append_to_file(path, "one\n");
  append_to_file(path, "two\n");
  CHECK(read_bytes(path) == "one\ntwo\n");
  CHECK_NOTHROW(sync_to_disk(path));
  CHECK_THROWS_WITH_AS(append_to_file(none, "x"),
                       (none + ": cannot be written: No such file or directory").c_str(), DataError);
  CHECK_THROWS_WITH_AS(append_to_file("/dev/full", "x"),
                       "/dev/full: cannot be written: No space left on device; try to free some space",
                       DataError);
}

TEST_CASE("an error of the system says what can be tried, where something can") {
  CHECK(system_error_text(EDQUOT) == "Disk quota exceeded; try to free some of your quota");
  CHECK(system_error_text(EACCES) == "Permission denied; try to change the permissions, or another folder");
  CHECK(system_error_text(EROFS) == "Read-only file system; try another folder, or mount it writable");
  CHECK(system_error_text(ENOENT) == "No such file or directory");
}
