#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/data/partial_file.h>
#include <tapeformer/tests/nn/formats/file_size_limit.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

using namespace tapeformer;

TEST_SUITE("data/partial_file") {
  TEST_CASE("pieces follow each other, and the file is there once it is finished") {
    const TemporaryFolder folder;
    const std::string path = folder.file("stream");
    write_bytes(path, "what was there before");
    {
      PartialFile file(path);
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

  TEST_CASE("without an end nothing is left, and what was there stays") {
    const TemporaryFolder folder;
    const std::string path = folder.file("stream");
    write_bytes(path, "old");
    {
      PartialFile file(path);
      file.append("new");
      file.replace_head("N");
      CHECK(folder.count() == 2);
    }
    CHECK(read_bytes(path) == "old");
    CHECK(folder.count() == 1);
  }

  TEST_CASE("when the disk is full the old file stays, and nothing is left beside it") {
    const TemporaryFolder folder;
    const std::string path = folder.file("stream");
    write_bytes(path, "old");
    const FileSizeLimit limit(1 << 16);
    const std::string message = path + ": cannot be written: File too large", large(1 << 20, 'x');
    PartialFile at_once(path);
    CHECK_THROWS_WITH_AS(at_once.append(large), message.c_str(), DataError);
    CHECK(folder.count() == 1);
    PartialFile at_the_end(path);
    at_the_end.append(large.substr(0, 100'000));
    CHECK_THROWS_WITH_AS(at_the_end.finish(), message.c_str(), DataError);
    CHECK(folder.count() == 1);
    CHECK(read_bytes(path) == "old");
  }

  TEST_CASE("a folder that is not there, a folder and a device are refused") {
    const TemporaryFolder folder;
    const std::string path = folder.file("no/stream"), taken = folder.file("taken");
    std::filesystem::create_directory(taken);
    CHECK_THROWS_WITH_AS(PartialFile{path}, (path + ": cannot be written: No such file or directory").c_str(),
                         DataError);
    CHECK_THROWS_WITH_AS(PartialFile{taken},
                         (taken + ": cannot be replaced: it is not a regular file").c_str(), DataError);
    CHECK_THROWS_WITH_AS(PartialFile{"/dev/null"}, "/dev/null: cannot be replaced: it is not a regular file",
                         DataError);
    CHECK_THROWS_WITH_AS(sync_folder(path), (path + ": cannot be written: No such file or directory").c_str(),
                         DataError);
    CHECK(folder.count() == 1);
  }
}
