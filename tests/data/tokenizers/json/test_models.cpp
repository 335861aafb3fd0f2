#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/json/parts.h>

#include <doctest/doctest.h>

#include <string>

using namespace tapeformer;
using namespace tapeformer::tokenizer_json;

TEST_SUITE("data/tokenizers/json/models") {
  TEST_CASE("Unigram takes the best sum of scores, and joins what is unknown") {
    const auto ids = [](const Json& part, const std::string& text) {
      std::vector<std::int32_t> found;
      make_model(part)->encode(text, found);
      return found;
    };
    using Ids = std::vector<std::int32_t>;
    const Json vocabulary = Json::parse(R"([["?", 0], ["a", -1], ["b", -1], ["ab", -1.5], ["abb", -4]])");
    const Json unigram = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocabulary}};
    CHECK(ids(unigram, "abb") == Ids{3, 2});
    CHECK(ids(unigram, "axyb") == Ids{1, 0, 2});
    CHECK(ids(unigram, "").empty());
    Json without = unigram;
    without.erase("unk_id");
    CHECK_THROWS_AS(ids(without, "x"), Error);

    const Json word_piece = {{"type", "WordPiece"},
                             {"unk_token", "?"},
                             {"max_input_chars_per_word", 5},
                             {"vocab", {{"?", 0}, {"a", 1}, {"##b", 2}, {"##bc", 3}, {"ab", 4}}}};
    CHECK(ids(word_piece, "abbc") == Ids{4, 3});
    CHECK(ids(word_piece, "abbd") == Ids{0});
    CHECK(ids(word_piece, "abbbbb") == Ids{0});
  }
}
