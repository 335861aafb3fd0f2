#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/json/parts.h>

#include <doctest/doctest.h>

#include <string>

using namespace tapeformer;
using namespace tapeformer::tokenizer_json;

TEST_SUITE("data/tokenizers/json/decoders") {
  TEST_CASE("decoders say what a token adds to a text") {
    const auto decoded = [](const Json& part, const std::string& token, bool is_first) {
      return make_decoder(part)(token, is_first);
    };
    CHECK(decoded(nullptr, "a", false) == " a");
    CHECK(decoded({{"type", "ByteLevel"}}, "\u0120a\u00ff", false) == " a\xff");
    CHECK(decoded({{"type", "ByteLevel"}}, "\u4e00", false) == "\u4e00");
    CHECK(decoded({{"type", "ByteFallback"}}, "<0x0A>", false) == "\n");
    CHECK(decoded({{"type", "ByteFallback"}}, "<0x0g>", false) == "<0x0g>");
    const Json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}};
    CHECK(decoded(metaspace, "_a", true) == "a");
    CHECK(decoded(metaspace, "_a", false) == " a");
    CHECK(decoded({{"type", "WordPiece"}}, "##a", false) == "a");
    CHECK(decoded({{"type", "WordPiece"}}, ".", false) == ".");
    CHECK(decoded({{"type", "WordPiece"}, {"cleanup", false}}, ".", false) == " .");
    const Json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
    const Json joined = {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, strip}}};
    CHECK(decoded(strip, "  a", false) == " a");
    CHECK(decoded(joined, "  a", false) == "  a");
    CHECK(decoded(joined, "  a", true) == " a");
  }
}
