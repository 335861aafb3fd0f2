#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/json/parts.h>

#include <doctest/doctest.h>

#include <string>

using namespace tapeformer;
using namespace tapeformer::tokenizer_json;

TEST_SUITE("data/tokenizers/json/byte_pairs") {
  TEST_CASE("merges come in their order, and unknown characters as bytes or as one token") {
    using Ids = std::vector<std::int32_t>;
    Json part = {{"type", "BPE"},
                 {"unk_token", "?"},
                 {"vocab", {{"?", 0}, {"a", 1}, {"b", 2}, {"c", 3}, {"bc", 4}, {"ab", 5}, {"abc", 6}}},
                 {"merges", {"b c", "a b", {"a", "bc"}}}};
    const auto ids = [&](const std::string& text) {
      std::vector<std::int32_t> found;
      make_model(part)->encode(text, found);
      return found;
    };
    CHECK(ids("abab") == Ids{5, 5});
    CHECK(ids("abcc") == Ids{6, 3});
    CHECK(ids("axxb") == Ids{1, 0, 0, 2});
    part["fuse_unk"] = true;
    CHECK(ids("axxb") == Ids{1, 0, 2});
    part["byte_fallback"] = true;
    for (int byte = 0; byte < 256; ++byte) {
      char name[8];
      std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
      part["vocab"][name] = 10 + byte;
    }
    CHECK(ids("x\u00e4") == Ids{10 + 'x', 10 + 0xc3, 10 + 0xa4});
    part["merges"] = Json::array({"a b"});
    CHECK(ids("abc") == Ids{5, 3});
    part["ignore_merges"] = true;
    CHECK(ids("abc") == Ids{6});
    part["merges"] = Json::array({"a x"});
    CHECK_THROWS_AS(ids("a"), UnsupportedPart);
    part["merges"] = Json::array({"ax"});
    CHECK_THROWS_AS(ids("a"), UnsupportedPart);
    part["dropout"] = 0.1;
    CHECK_THROWS_AS(ids("a"), UnsupportedPart);
  }
}
