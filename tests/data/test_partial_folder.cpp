#include <doctest/doctest.h>
#include <tapeformer/data/partial_folder.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

namespace {

namespace fs = std::filesystem;

std::string refusal(const std::string& folder) {
  return message_of<DataError>([&] { const PartialFolder partial(folder, {"a", "b"}); });
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "a folder is there whole, or not at all") {
  const std::string path = folder.file("made");
  {
    const PartialFolder partial(path + "/", {"a", "b"});
    write_bytes(partial.file("a"), "text");
    write_bytes(partial.file("b.partial"), "text");
  }
  CHECK(folder.count() == 0);
  {
    PartialFolder partial(path, {"a", "b"});
    write_bytes(partial.file("a"), "text");
    CHECK_FALSE(fs::exists(path));
    partial.finish();
  }
  CHECK(read_bytes(path + "/a") == "text");
  CHECK(folder.count() == 1);
}

TEST_CASE_FIXTURE(InFolder, "a killed process's remains are removed, and other files are not") {
  const std::string path = folder.file("made");
  fs::create_directory(path + ".partial");
  write_bytes(path + ".partial/a", "old");
  write_bytes(path + ".partial/b.partial", "old");
  {
    const PartialFolder partial(path, {"a", "b"});
    CHECK(fs::is_empty(partial.path()));
  }
  fs::create_directory(path + ".partial");
  write_bytes(path + ".partial/precious", "data");
  const std::string refused =
      path + ": cannot be made: " + path + ".partial is in the way; try another folder, or move it";
  CHECK(refusal(path) == refused);
  CHECK(read_bytes(path + ".partial/precious") == "data");
  fs::remove_all(path + ".partial");
  write_bytes(path + ".partial", "data");
  CHECK(refusal(path) == refused);
  CHECK(read_bytes(path + ".partial") == "data");
}

TEST_CASE_FIXTURE(InFolder, "a folder that holds something, or is being made, is refused") {
  const std::string path = folder.file("made");
  fs::create_directory(path);
  CHECK(refusal(path) == "nothing was thrown");
  fs::create_directory(path);
  write_bytes(path + "/mine", "mine");
  CHECK(refusal(path) == path + ": already exists; try another folder, or remove it");
  const std::string other = folder.file("other");
  const PartialFolder first(other, {"a", "b"});
  CHECK(refusal(other) ==
        other + ": is being made by another process; wait until it has ended, or try another folder");
  CHECK(fs::exists(first.path()));
  const std::string longest = folder.file(std::string(255, 'x'));  // too long with .partial at its end
  CHECK(refusal(longest) == longest + ": cannot be made: File name too long");
}

TEST_CASE_FIXTURE(InFolder, "an empty folder that cannot be replaced is refused before the work") {
  const std::string empty = folder.file("empty"), link = folder.file("link");
  fs::create_directory(empty);
  fs::create_directory_symlink(empty, link);
  CHECK(refusal(link) == link + ": cannot be replaced: Not a directory; try a folder within it");
  CHECK(refusal(empty + "/.") == empty + "/.: cannot be replaced: Invalid argument; try a folder within it");
  CHECK(fs::is_empty(link));
  fs::remove(empty);
  CHECK(refusal(link) == link + ": already exists; try another folder, or remove it");
  CHECK(fs::is_symlink(link));
}
