#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/tokenizer_json_parts.h>

#include <doctest/doctest.h>

#include <string>

using namespace tapeformer;
using namespace tapeformer::tokenizer_json;

TEST_SUITE("data/tokenizers/tokenizer_json_normalizers") {
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
}
