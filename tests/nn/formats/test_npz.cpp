#include <tapeformer/nn/formats/npz.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_CASE("written arrays are read back, and their bytes are the same every time") {
  const TemporaryFolder folder;
  const NpzArrays written{{"none", {"<f4", {0, 2}, ""}},
                          {"special:text", {"|i1", {9}, std::string("type: x\n\0", 9)}},
                          {"one", {"<f4", {1, 2, 1}, std::string("\0\1\2\3\4\5\6\7", 8)}},
                          {"scalar", {"<f4", {}, "1234"}}};
  const std::string path = folder.file("a.npz"), again = folder.file("b.npz");
  save_npz(path, written);
  const NpzArrays read = load_npz(path);
  REQUIRE(read.size() == written.size());
  for (const auto& [name, array] : written) {
    INFO(name);
    const NpzArray& other = read.at(name);
    CHECK(other.type == array.type);
    CHECK(other.shape == array.shape);
    CHECK(other.data == array.data);
  }
  save_npz(again, read);
  CHECK(read_bytes(again) == read_bytes(path));
  save_npz(path, {{"special:text", {"<i1", {1}, "x"}}});  // as Marian writes it
  CHECK(load_npz(path).at("special:text").type == "|i1");
}

TEST_CASE("damaged arrays are refused by name") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.npz");
  save_npz(path, {{"one", {"<f4", {3, 2}, std::string(24, 'x')}}, {"two", {"|i1", {3}, "abc"}}});
  const std::string whole = read_bytes(path);
  const struct {
    std::string from, to, message;  // the last `from` is replaced
  } spoilt[] = {
      {"x", "y", "array 'one': is damaged"},
      {"(3,2)", "(3,3)", "array 'one': is damaged: its shape does not fit its data"},
      {"(3,2)", "(2,3)", "array 'one': is damaged"},
      {"(3,2), }" + std::string(17, ' '), "(999999999999999999,2), }", "array 'one': [shape]"},
      {"'shape': (3,2), }", "'shape': (-3,2),}", "array 'one': is damaged"},
      {"|i1", "<i8", "array 'two': must be <f4 or |i1 in C's order; got <i8"},
      {"False", "True ", "array 'two': must be <f4 or |i1 in C's order; got |i1 in Fortran's"},
      {"'descr'", "'other'", "array 'two': must be <f4 or |i1 in C's order; got "},
      {"\x93NUMPY", "\x93NUMPX", "array 'two': is damaged"},
      {std::string("PK\1\2\24\0\24\0\0\0\0", 11), std::string("PK\1\2\24\0\24\0\0\0\10", 11),
       "'two.npy' is compressed; try saving it uncompressed"},
      {"PK\1\2", "PK\1\3", "is damaged"},
  };
  for (const auto& [from, to, message] : spoilt) {
    std::string content = whole;
    REQUIRE(content.rfind(from) != std::string::npos);
    content.replace(content.rfind(from), from.size(), to);
    write_bytes(path, content);
    CHECK_MESSAGE(message_of<CheckpointError>([&] { load_npz(path); }).find(path + ": " + message) == 0, to);
  }
  for (std::size_t missing = 1; missing < whole.size(); missing += missing < 8 ? 1 : 19) {
    write_bytes(path, whole.substr(0, whole.size() - missing));
    CHECK_THROWS_AS(load_npz(path), CheckpointError);
  }
}

TEST_CASE("more arrays than an archive can count are refused") {
  const TemporaryFolder folder;
  NpzArrays many;
  for (int i = 0; i <= 0xffff; ++i) many[std::to_string(i)] = {"|i1", {0}, ""};
  const std::string path = folder.file("a.npz");
  CHECK(message_of<CheckpointError>([&] { save_npz(path, many); }) ==
        path + ": would have more than 65,535 arrays");
}
