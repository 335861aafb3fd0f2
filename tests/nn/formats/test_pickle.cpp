#include <tapeformer/nn/formats/pickle.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <ostream>

using namespace tapeformer;

namespace {

std::string pickle_refusal(const std::string& bytes) {
  return message_of<CheckpointError>([&] { Pickle::read(bytes); });
}

}  // namespace

TEST_CASE("numbers, texts and tuples come out as they went in") {
  // ([5, 300, -2, "ab", (7,)]), with one value put away and recalled
  const std::string bytes("\x80\2](K\5q\0M\54\1J\xfe\xff\xff\xffX\2\0\0\0ab\x8a\1\7\x85h\0e.rest", 39);
  const Pickle pickle = Pickle::read(bytes);
  REQUIRE(pickle.listed.size() == 6);
  CHECK(pickle.listed[0]->number == 5);
  CHECK(pickle.listed[1]->number == 300);
  CHECK(pickle.listed[2]->number == -2);
  CHECK(pickle.listed[3]->text == "ab");
  CHECK(pickle.listed[4]->items[0]->number == 7);
  CHECK(pickle.listed[5] == pickle.listed[0]);
  CHECK(bytes.substr(pickle.end, 4) == "rest");
}

TEST_CASE("programs that are damaged or call anything are refused") {
  CHECK(pickle_refusal("") == "is cut short");
  CHECK(pickle_refusal("X\xff\xff\xff\x7f") == "is cut short");
  CHECK(pickle_refusal("h\1.") == "lacks a value");
  CHECK(pickle_refusal("\x85.") == "lacks a value");
  CHECK(pickle_refusal("t.") == "lacks a mark");
  CHECK(pickle_refusal("cos\nsystem\n)R.") ==
        "has an object of os system, and only dictionaries of tensors are read");
  CHECK(pickle_refusal("\x81") == "has the unknown instruction 129");
  CHECK(pickle_refusal(")" + std::string(1000, '\x85') + ".") == "has tuples nested too deeply");
  CHECK(pickle_refusal("(" + std::string(100, 'N') + "t.") == "has a tuple of too many values");
  CHECK(pickle_refusal(std::string(5 << 20, 'N')) == "has too many values");
}
