#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/formats/npz.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

using namespace tapeformer;

namespace {

/// A file of three arrays, to be spoilt.
struct NpzCopy : TemporaryFolder {
  NpzCopy() {
    save_npz(path, {{"one", one}, {"wide", wide}, {"none", Tensor::zeros({0, 2})}}, {{"special:text", text}});
  }
  /// The error message, without the path, of reading everything after change(content).
  std::string refusal(const std::function<void(std::string&)>& change) const {
    std::string content = read_bytes(path);
    change(content);
    write_bytes(file("spoilt.npz"), content);
    const std::string said = message_of<CheckpointError>([&] {
      const NpzFile npz = NpzFile::open(file("spoilt.npz"));
      npz.tensor("one"), npz.tensor("wide"), npz.bytes("special:text");
    });
    return said.substr(std::min(said.size(), file("spoilt.npz").size()));
  }
  const std::string path = file("a.npz"), text = std::string("type: x\n\0", 9);
  const Tensor one = Tensor::from(std::vector<float>{1, 2.5, -3, 4, 5, 6}, {3, 2}),
               wide = Tensor::from(std::vector<double>{1e300}, {1, 1});
};

void replace(std::string& content, const std::string& from, const std::string& to, bool last = false) {
  const std::size_t at = last ? content.rfind(from) : content.find(from);
  REQUIRE(at != std::string::npos);
  content.replace(at, from.size(), to);
}

}  // namespace

TEST_SUITE("nn/formats/npz") {
  TEST_CASE("arrays that were written are read, and their bytes are the same every time") {
    const NpzCopy copy;
    const NpzFile npz = NpzFile::open(copy.path);
    CHECK(npz.names() == std::vector<std::string>{"none", "one", "special:text", "wide"});
    CHECK(npz.tensor("one").shape() == Shape{3, 2});
    CHECK(npz.tensor("one").at(1) == 2.5);
    CHECK(npz.tensor("wide").item() == 1e300);
    CHECK(npz.tensor("none").shape() == Shape{0, 2});
    CHECK(npz.bytes("special:text") == copy.text);
    CHECK(read_bytes(NpzCopy().path) == read_bytes(copy.path));
  }

  TEST_CASE("a file that NumPy wrote is read") {
    const NpzFile npz = NpzFile::open(TAPEFORMER_SOURCE_DIR "/tests/golden/arrays.npz");
    CHECK(npz.tensor("long").shape() == Shape{1, 2, 1});
    CHECK(npz.tensor("long").at(1) == -0.125);
    CHECK(npz.tensor("scalar").item() == 7.5);
    CHECK(npz.bytes("text") == std::string("type: x\n\0", 9));
    CHECK(message_of<CheckpointError>([&] { npz.tensor("half"); }) ==
          npz.path() + ": array 'half' is of type <f2 with 1 axes; try one of type <f4 in C's order");
    CHECK(message_of<CheckpointError>([&] { npz.tensor("columns"); }).find("<f4 in Fortran's order") !=
          std::string::npos);
  }

  TEST_CASE("damage is refused, the array named") {
    const NpzCopy copy;
    const std::string of_one = ": array 'one' is damaged: ";
    CHECK(copy.refusal([](std::string&) {}) == "");
    CHECK(copy.refusal([](std::string& all) { all.resize(40); }) == ": is not an archive of arrays");
    CHECK(copy.refusal([](std::string& all) { all.erase(70, 20); }).find("is damaged") != std::string::npos);
    CHECK(copy.refusal([](std::string& all) { replace(all, "(3,2,)", "(3,3,)"); }) ==
          of_one + "its shape does not fit its data");
    CHECK(copy.refusal([](std::string& all) { replace(all, "(3,2,)", "(2,3,)"); }) ==
          of_one + "it does not have the checksum that was written");
    CHECK(copy.refusal([](std::string& all) { replace(all, "'descr'", "'other'"); }) ==
          of_one + "its header has no 'descr': '");
    CHECK(copy.refusal([](std::string& all) { replace(all, "\x93NUMPY", "\x93NUMPX"); }) ==
          of_one + "it is not of NumPy's format");
    CHECK(copy.refusal([](std::string& all) { replace(all, "none.npy", "wide.npy", true); }) ==
          ": array 'wide' is damaged: it is there twice");
    CHECK(copy.refusal([](std::string& all) {
      const std::size_t place = all.find("PK\1\2") + 10;
      all[place] = 8;
    }) == ": array 'one' is compressed; try numpy.savez, which leaves arrays as they are");
    CHECK(message_of<CheckpointError>([&] { NpzFile::open(copy.path).tensor("two"); }) ==
          copy.path + ": has no array 'two'");
  }
}
