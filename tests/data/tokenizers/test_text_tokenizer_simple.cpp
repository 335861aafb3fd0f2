#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/text_tokenizer_kinds.h>
#include <tapeformer/tests/data/temporary_file.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

namespace {

using Ids = std::vector<std::int32_t>;

TextSource source(std::vector<std::string> pieces) {
  return [pieces](const auto& reader) {
    for (const std::string& piece : pieces) reader(piece);
  };
}

}  // namespace

TEST_SUITE("data/tokenizers/text_tokenizer_simple") {
  TEST_CASE("characters are numbered in order of code points, whatever pieces the text comes in") {
    const auto tokenizer = train_character_tokenizer(source({"b😀a", "", "é€\n\uffee", "ba"}));
    CHECK(tokenizer->vocabulary_size() == 7);
    CHECK(tokenizer->encode("\nabé€\uffee😀") == Ids{0, 1, 2, 3, 4, 5, 6});
    CHECK(tokenizer->decode({6, 0, 3, 3}) == "😀\néé");
    CHECK(tokenizer->bytes_of(4) == "€");
    CHECK(tokenizer->decode({}).empty());
    CHECK(tokenizer->kind() == std::string("character"));
    CHECK_FALSE(tokenizer->begin());
    CHECK_FALSE(tokenizer->end());
  }

  TEST_CASE("a NUL is a character like any other") {
    const auto tokenizer = train_character_tokenizer(source({std::string("a\0", 2)}));
    CHECK(tokenizer->encode(std::string_view("a\0", 2)) == Ids{1, 0});
    CHECK(parse_text_tokenizer(tokenizer->serialize(), "t")->decode({0}) == std::string(1, '\0'));
  }

  TEST_CASE("ids are added to those that are there") {
    Ids ids = {7};
    train_character_tokenizer(source({"ab"}))->encode("ba", ids);
    make_byte_tokenizer()->encode("a", ids);
    CHECK(ids == Ids{7, 1, 0, 97});
  }

  TEST_CASE("a character that the vocabulary does not have is named, with its place") {
    const auto tokenizer = train_character_tokenizer(source({"abé\U00010000"}));
    const auto error_of = [&](std::string_view text) {
      return message_of<DataError>([&] { tokenizer->encode(text); });
    };
    CHECK(error_of("aéz") ==
          "[tokenizer] a character tokenizer knows the 4 characters of its text only; got \"z\" (U+007A) at "
          "byte 3");
    CHECK(error_of("ß").find("got \"ß\" (U+00DF) at byte 0") != std::string::npos);
    CHECK(error_of("\U0010ffff").find("(U+10FFFF) at byte 0") != std::string::npos);
    CHECK(error_of("ab\n").find("got U+000A at byte 2") != std::string::npos);
    CHECK(error_of("a\xc3") ==
          "[tokenizer] the text of a character tokenizer is UTF-8; got something else at byte 1");
    CHECK(error_of("a\xff") ==
          "[tokenizer] the text of a character tokenizer is UTF-8; got something else at byte 1");
    CHECK(message_of<DataError>([&] { tokenizer->bytes_of(4); }) ==
          "[tokenizer] ids are in [0, vocabulary); got 4 with a vocabulary of 4");
    CHECK_THROWS_AS(tokenizer->decode({0, -1}), DataError);
  }

  TEST_CASE("a character tokenizer needs text, and UTF-8") {
    CHECK(message_of<DataError>([] { train_character_tokenizer(source({""})); }) ==
          "[tokenizer] a character tokenizer needs text; got none");
    CHECK(message_of<DataError>([] {
            train_character_tokenizer(source({"ab", "a\x80"}));
          }) ==
          "[tokenizer] the text of a character tokenizer is UTF-8; got something else at byte 1 of a piece "
          "of it");
  }

  TEST_CASE("a list of characters that is out of order, empty or no UTF-8 is refused") {
    const auto error_of = [](const std::string& payload) {
      return message_of<DataError>([&] { parse_character_tokenizer(payload, "t"); });
    };
    CHECK(error_of("abb") == "t: is not a list of characters in order: \"b\" (U+0062) is out of place");
    CHECK(error_of("éa").find("\"a\" (U+0061) is out of place") != std::string::npos);
    CHECK(error_of("[\"a\"]").find("t: is not a list of characters in order") ==
          0);  // a translation tokenizer's
    CHECK(error_of("") == "t: is not a list of characters: it is empty or not UTF-8");
    CHECK(error_of("a\xff") == "t: is not a list of characters: it is empty or not UTF-8");
  }

  TEST_CASE("the byte tokenizer takes and gives all bytes") {
    const auto tokenizer = make_byte_tokenizer();
    std::string all;
    Ids ids;
    for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte), ids.push_back(byte);
    CHECK(tokenizer->encode(all) == ids);
    CHECK(tokenizer->decode(ids) == all);
    CHECK(tokenizer->vocabulary_size() == 256);
    CHECK(tokenizer->kind() == std::string("byte"));
    CHECK_THROWS_AS(tokenizer->bytes_of(256), DataError);
    CHECK_THROWS_AS(tokenizer->bytes_of(-1), DataError);
  }

  TEST_CASE("bytes can be cut anywhere, characters only between each other") {
    const auto characters = train_character_tokenizer(source({"a😀"}));
    const auto bytes = make_byte_tokenizer();
    CHECK(bytes->safe_cut("a\xf0\x9f") == 3);
    CHECK(bytes->safe_cut("") == 0);
    CHECK(characters->safe_cut("a\xf0\x9f\x98") == 1);
    CHECK(characters->safe_cut("\xf0\x9f\x98") == 0);
    CHECK(characters->safe_cut("a😀") == 5);
    CHECK(characters->safe_cut("") == 0);
  }
}
