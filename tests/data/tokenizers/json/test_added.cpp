#include <tapeformer/data/tokenizers/json/added.h>

#include <doctest/doctest.h>

#include <regex>
#include <string>

using namespace tapeformer;
using namespace tapeformer::tokenizer_json;

TEST_SUITE("data/tokenizers/json/added") {
  TEST_CASE("added tokens are found before anything else: the leftmost, then the longest") {
    const Json list = {{{"id", 1}, {"content", "<a>"}, {"special", true}},
                       {{"id", 2}, {"content", "<a>b"}, {"special", true}},
                       {{"id", 3}, {"content", "<s>"}, {"special", true}, {"lstrip", true}, {"rstrip", true}},
                       {{"id", 4}, {"content", "Word"}, {"normalized", false}},
                       {{"id", 5}, {"content", "X"}, {"normalized", true}}};
    const AddedTokens added(list, {{"<a>", 1}}, [](const std::string& text) {
      return std::regex_replace(text, std::regex("X"), "x");
    });
    const auto found = [&](const std::string& text) {
      std::string parts;
      std::vector<std::int32_t> ids;
      std::size_t known = 0;
      const auto show = [&] {
        for (; known < ids.size(); ++known) parts += std::to_string(ids[known]);
      };
      added.encode(text, ids, [&](const std::string& part, bool begins) {
        show();
        parts += (begins ? "^(" : "(") + part + ")";
      });
      show();
      return parts;
    };
    CHECK(found("A<a>bB<a>") == "^(A)2(B)1");
    CHECK(found("a <s>\u00a0b") == "^(a)3(b)");
    CHECK(found("Words") == "4(s)");
    CHECK(found("axA") == "^(a)5(A)");
    CHECK(found("").empty());
    for (const Json& refused : {Json{{"id", 2}, {"content", "<a>"}}, Json{{"id", -1}, {"content", "b"}},
                                Json{{"id", 2}, {"content", "b"}, {"single_word", true}}})
      CHECK_THROWS_AS(AddedTokens(Json::array({refused}), {{"<a>", 1}}, make_normalizer(nullptr)),
                      UnsupportedPart);
  }
}
