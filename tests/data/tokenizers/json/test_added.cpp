#include <tapeformer/data/tokenizers/json/added.h>

#include <doctest/doctest.h>

#include <string>

using namespace tapeformer;
using namespace tapeformer::tokenizer_json;

TEST_CASE("added tokens are found before anything else: the leftmost, then the longest") {
  const Json list = {{{"id", 1}, {"content", "<a>"}, {"special", true}},
                     {{"id", 2}, {"content", "<a>b"}, {"special", true}},
                     {{"id", 3}, {"content", "<s>"}, {"special", true}, {"lstrip", true}, {"rstrip", true}},
                     {{"id", 4}, {"content", "word"}, {"single_word", true}, {"normalized", false}},
                     {{"id", 5}, {"content", "X"}, {"normalized", true}},
                     {{"id", 6}, {"content", "\n"}, {"special", true}},
                     {{"id", 7}, {"content", "\t"}, {"special", true}, {"lstrip", true}}};
  const AddedTokens added(list, {{"<a>", 1}}, make_normalizer({{"type", "Lowercase"}}));
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
  CHECK(found("A<a>bB<a>") == "^(a)2(b)1");
  CHECK(found("a <s>\u00a0b") == "^(a)3(b)");
  CHECK(found("a <s> \nb") == "^(a)36(b)");  // the white space of one holds the other
  CHECK(found("a<s>\tb") == "^(a)3(b)");
  CHECK(found("word words word") == "4( words )4");
  for (const char* beside : {"\u00b2", "\u00bd", "\u2118", "\u00b7", "-", "\u200b", "\U0001f600"}) {
    INFO(beside);  // not characters of words
    CHECK(found(std::string("word") + beside) == "4(" + std::string(beside) + ")");
    CHECK(found(beside + std::string("word")) == "^(" + std::string(beside) + ")4");
  }
  for (const char* beside : {"\u0301", "\u0903", "\u20dd", "\u200c", "\u200d", "\u24d0", "\U0001f130",
                             "\u2170", "\u0663", "_", "\u203f", "\u00aa", "\u4e2d"}) {
    INFO(beside);
    CHECK(found(std::string("word") + beside) == "^(word" + std::string(beside) + ")");
    CHECK(found(beside + std::string("word")) == "^(" + std::string(beside) + "word)");
  }
  CHECK(found("axA") == "^(a)5(a)");
  CHECK(found("").empty());
  CHECK_THROWS_AS(AddedTokens(Json{{{"id", 2}, {"content", "<a>"}}}, {{"<a>", 1}}, make_normalizer(nullptr)),
                  UnsupportedPart);
}
