#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/json/parts.h>

#include <doctest/doctest.h>

#include <string>

using namespace tapeformer;
using namespace tapeformer::tokenizer_json;

TEST_SUITE("data/tokenizers/json/splitters") {
  TEST_CASE("splits do with matches what their behaviour says") {
    const auto split = [](const char* behavior, bool invert) {
      std::vector<Piece> pieces = {{"-ab--c-", true}};
      make_splitter(
          {{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}})(
          pieces);
      std::string text;
      for (const Piece& piece : pieces) text += (piece.begins_text ? "^" : "|") + piece.text;
      return text;
    };
    CHECK(split("Removed", false) == "|ab|c");
    CHECK(split("Removed", true) == "^-|-|-|-");
    CHECK(split("Isolated", false) == "^-|ab|-|-|c|-");
    CHECK(split("Contiguous", false) == "^-|ab|--|c|-");
    CHECK(split("MergedWithPrevious", false) == "^-|ab-|-|c-");
    CHECK(split("MergedWithNext", false) == "^-ab|-|-c|-");
    CHECK_THROWS_AS(split("Other", false), UnsupportedPart);
  }

  TEST_CASE("bytes are written as characters") {
    CHECK(to_byte_characters("a \n\xff") == "a\u0120\u010a\u00ff");
  }
}
