#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/atomic_file.h>
#include <tapeformer/tests/nn/formats/file_size_limit.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

using namespace tapeformer;

TEST_SUITE("nn/formats/atomic_file") {
  TEST_CASE("it writes the parts one after the other and replaces what was there") {
    const TemporaryFolder folder;
    const std::string path = folder.file("config.json");
    write_bytes(path, "something old and longer");
    write_atomically(path, {{"one ", 4}, {nullptr, 0}, {"two", 3}});
    CHECK(read_bytes(path) == "one two");
    write_atomically(path, "");
    CHECK(read_bytes(path).empty());
    CHECK(folder.count() == 1);
  }

  TEST_CASE("when the disk is full the old file stays, and nothing is left beside it") {
    const TemporaryFolder folder;
    const std::string path = folder.file("weights");
    write_bytes(path, "old");
    const std::string large(1 << 20, 'x');
    {
      const FileSizeLimit limit(1 << 16);
      CHECK_THROWS_WITH_AS(write_atomically(path, large),
                           (path + ": cannot be written: File too large").c_str(), CheckpointError);
    }
    CHECK(read_bytes(path) == "old");
    CHECK(folder.count() == 1);
  }

  TEST_CASE("a folder that is not there, or is a file, is named") {
    const TemporaryFolder folder;
    const std::string path = folder.file("no/weights"), below_file = folder.file("file/weights");
    write_bytes(folder.file("file"), "");
    CHECK_THROWS_WITH_AS(write_atomically(path, "x"),
                         (path + ": cannot be written: No such file or directory").c_str(), CheckpointError);
    CHECK_THROWS_WITH_AS(write_atomically(below_file, "x"),
                         (below_file + ": cannot be written: Not a directory").c_str(), CheckpointError);
  }

  TEST_CASE("what cannot be replaced leaves no partial file") {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder.file("weights"));
    CHECK_THROWS_WITH_AS(write_atomically(folder.file("weights"), "x"),
                         (folder.file("weights") + ": cannot be replaced: it is not a regular file").c_str(),
                         CheckpointError);
    CHECK(folder.count() == 1);
  }

  TEST_CASE("whether a file can be written shows before there is something to write") {
    const TemporaryFolder folder;
    const std::string path = folder.file("weights"), nowhere = folder.file("no/weights");
    write_bytes(path, "old");
    CHECK_NOTHROW(check_writable(path));
    CHECK_NOTHROW(check_writable(folder.file("new")));
    CHECK(read_bytes(path) == "old");
    CHECK(folder.count() == 1);
    CHECK_THROWS_WITH_AS(check_writable(nowhere),
                         (nowhere + ": cannot be written: No such file or directory").c_str(),
                         CheckpointError);
    CHECK_THROWS_WITH_AS(check_writable("/dev/null"),
                         "/dev/null: cannot be replaced: it is not a regular file", CheckpointError);
  }

  TEST_CASE("a device is never replaced by a file") {
    CHECK_THROWS_WITH_AS(write_atomically("/dev/null", "text"),
                         "/dev/null: cannot be replaced: it is not a regular file", CheckpointError);
  }
}
