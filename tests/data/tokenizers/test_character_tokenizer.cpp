#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/character_tokenizer.h>
#include <tapeformer/tests/data/tokenizers/pieces_of_text.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

TEST_CASE("characters are numbered by code point, however the text is split into pieces") {
  const auto tokenizer = train_character_tokenizer(text_in({"b😀a", "", "é€\n\uffee", "ba"}));
  CHECK(tokenizer->vocabulary_size() == 7);
  CHECK(tokenizer->encode("\nabé€\uffee😀") == Ids{0, 1, 2, 3, 4, 5, 6});
  CHECK(tokenizer->decode({6, 0, 3, 3}) == "😀\néé");
  CHECK(tokenizer->bytes_of(4) == "€");
  CHECK(tokenizer->kind() == std::string("character"));
  CHECK_FALSE(tokenizer->begin());
  CHECK_FALSE(tokenizer->end());
}

TEST_CASE("a NUL is a character like any other, and ids are added to those that are there") {
  const auto tokenizer = train_character_tokenizer(text_in({std::string("a\0", 2)}));
  Ids ids = {7};
  tokenizer->encode(std::string_view("a\0", 2), ids);
  CHECK(ids == Ids{7, 1, 0});
  CHECK(parse_tokenizer(text_tokenizers(), tokenizer->serialize(), "t")->decode({0}) == std::string(1, '\0'));
}

TEST_CASE("a character outside the vocabulary is named, with its place") {
  const auto tokenizer = train_character_tokenizer(text_in({"abé\U00010000"}));
  const auto error_of = [&](std::string_view text) {
    return message_of<DataError>([&] { tokenizer->encode(text); });
  };
  CHECK(error_of("aéz") ==
        "[tokenizer] a character tokenizer knows only the 4 characters of its text; got \"z\" (U+007A) at "
        "byte 3");
  CHECK(has(error_of("\U0010ffff"), "(U+10FFFF) at byte 0"));
  CHECK(has(error_of("ab\n"), "got U+000A at byte 2"));
  for (const char* bad : {"a\xc3", "a\xff"})
    CHECK(error_of(bad) ==
          "[tokenizer] the text of a character tokenizer must be UTF-8; got something else at byte 1");
  CHECK_THROWS_AS(tokenizer->decode({0, -1}), DataError);
}

TEST_CASE("a character tokenizer needs text, and UTF-8") {
  CHECK(message_of<DataError>([] { train_character_tokenizer(text_in({""})); }) ==
        "[tokenizer] a character tokenizer needs text; got none");
  CHECK_THROWS_WITH_AS(train_character_tokenizer(text_in({"ab", "a\x80"})),
                       "[tokenizer] the text of a character tokenizer must be UTF-8; got something else at "
                       "byte 1 of a piece of it",
                       DataError);
}

TEST_CASE("a list of characters that is out of order, empty or no UTF-8 is refused") {
  const auto error_of = [](const std::string& payload) {
    return message_of<DataError>([&] { text_characters().read(payload, "t"); });
  };
  CHECK(error_of("abb") == "t: is not a list of characters in order: \"b\" (U+0062) is out of place");
  CHECK(has(error_of("éa"), "\"a\" (U+0061) is out of place"));
  CHECK(error_of("[\"a\"]").find("t: is not a list of characters in order") ==
        0);  // a translation tokenizer's
  CHECK(error_of("") == "t: is not a list of characters: it is empty or not UTF-8");
  CHECK(error_of("a\xff") == "t: is not a list of characters: it is empty or not UTF-8");
}

TEST_CASE("a text can be cut between characters") {
  const auto characters = train_character_tokenizer(text_in({"a😀"}));
  CHECK(characters->safe_cut("a\xf0\x9f\x98") == 1);
  CHECK(characters->safe_cut("\xf0\x9f\x98") == 0);
  CHECK(characters->safe_cut("a😀") == 5);
}
