#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/json/parts.h>

#include <doctest/doctest.h>

#include <string>

using namespace tapeformer;
using namespace tapeformer::tokenizer_json;

TEST_SUITE("data/tokenizers/json/normalizers") {
  TEST_CASE("normalisers change what their names say") {
    const auto normal = [](const Json& part, const std::string& text) { return make_normalizer(part)(text); };
    CHECK(normal(nullptr, " A\u0308 ") == " A\u0308 ");
    CHECK(normal({{"type", "NFC"}}, "A\u0308\ufb01") == "\u00c4\ufb01");
    CHECK(normal({{"type", "NFD"}}, "\u00c4") == "A\u0308");
    CHECK(normal({{"type", "NFKC"}}, "A\u0308\ufb01") == "\u00c4fi");
    CHECK(normal({{"type", "NFKD"}}, "\u00c4\ufb01") == "A\u0308fi");
    CHECK(normal({{"type", "Lowercase"}}, "\u0130\u03a3X") == "i\u0307\u03c3x");
    CHECK(normal({{"type", "StripAccents"}}, "a\u0308\u0903b") == "ab");
    CHECK(normal({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, "\u00a0 a ") == "a ");
    CHECK(normal({{"type", "Prepend"}, {"prepend", "_"}}, "a") == "_a");
    CHECK(normal({{"type", "Prepend"}, {"prepend", "_"}}, "").empty());
    const Json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
    CHECK(normal({{"type", "Sequence"}, {"normalizers", {twice, twice}}}, "ab") == "aaaab");
    const std::string bert = "\u00c9 \u4e00\tx\u200d\ufffd";
    CHECK(normal({{"type", "BertNormalizer"}}, bert) == "e  \u4e00  x");
    CHECK(normal({{"type", "BertNormalizer"}, {"strip_accents", false}, {"handle_chinese_chars", false}},
                 bert) == "\u00e9 \u4e00 x");
  }

  TEST_CASE("marks come in canonical order, however many there are") {
    const auto repeated = [](const std::string& text, int times) {
      std::string all;
      for (int i = 0; i < times; ++i) all += text;
      return all;
    };
    const auto normal = [](const char* type, const std::string& text) {
      return make_normalizer({{"type", type}})(text);
    };
    const std::string above = "\u0301", below = "\u0323";  // of classes 230 and 220
    for (const int count : {1, 2, 3, 200'000}) {           // hours, were that the square of them
      const std::string mixed = repeated(above + below, count);
      const std::string sorted = repeated(below, count) + repeated(above, count);
      for (const char* type : {"NFD", "NFKD"}) CHECK((normal(type, "b" + mixed + "c") == "b" + sorted + "c"));
      const std::string composed = "\u1ea1" + sorted.substr(below.size());
      for (const char* type : {"NFC", "NFKC"}) CHECK((normal(type, "a" + mixed) == composed));
      CHECK((normal("BertNormalizer", "A" + mixed) == "a"));
      // A sign of class 0 whose parts, of classes 129 and 130, are sorted too.
      CHECK((normal("NFC", repeated("\u0f73", count)) ==
             repeated("\u0f71", count) + repeated("\u0f72", count)));
    }
    CHECK(normal("NFC", "\u1112\u1161\u11ab\u0344") == "\ud55c\u0308\u0301");
    CHECK(normal("NFKC", "\ufdfa").size() == 33);
  }
}
