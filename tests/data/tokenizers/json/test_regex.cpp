#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/json/parts.h>

#include <doctest/doctest.h>

#include <string>

using namespace tapeformer;
using namespace tapeformer::tokenizer_json;

TEST_SUITE("data/tokenizers/json/regex") {
  TEST_CASE("matches and what lies between them are the whole text") {
    const auto parts = [](const Matcher& matches, const std::string& text) {
      std::string all;
      for (const Match& match : matches(text))
        all += (match.is_match ? "[" : "(") + std::string(match.text) + (match.is_match ? "]" : ")");
      return all;
    };
    CHECK(parts(make_regex("a+"), "baac") == "(b)[aa](c)");
    CHECK(parts(make_regex("x*"), "\u00e4x") == "(\u00e4)[x]");
    CHECK(parts(make_regex(R"(\s)"), "a\u0085b\u180ec") == "(a)[\u0085](b\u180ec)");
    CHECK(parts(make_regex(R"([^\s\w])"), "a.\u0301") == "(a)[.](\u0301)");
    CHECK(parts(make_regex(R"(\S\W)"), "a.") == "[a.]");
    CHECK(parts(make_matcher({{"String", "ab"}}), "ababc") == "[ab][ab](c)");
    CHECK(parts(make_regex("a"), "").empty());
    CHECK(parts(make_regex("^a"), "a\nab") == "[a](\n)[a](b)");
    for (const char* other : {"(a", R"(\bb)", R"([\S])", "[[a]b]", R"(\h)", "(?m)a"})
      CHECK_THROWS_AS(make_regex(other), UnsupportedPart);
    CHECK_THROWS_AS(make_matcher({{"String", ""}}), UnsupportedPart);
  }

  TEST_CASE("a pattern that takes forever is given up") {
    CHECK_THROWS_AS(make_regex("(a+)+$")(std::string(60, 'a') + "b"), Error);
  }
}
