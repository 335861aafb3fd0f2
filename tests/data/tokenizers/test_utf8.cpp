#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <utf8proc.h>

#include <map>

using namespace tapeformer;

constexpr auto kAllValid = std::string_view::npos;

TEST_CASE("the first and the last code point of every length are valid") {
  CHECK(find_invalid_utf8("") == kAllValid);
  CHECK(find_invalid_utf8(std::string_view("\0\x7f", 2)) == kAllValid);
  CHECK(find_invalid_utf8("\xc2\x80\xdf\xbf") == kAllValid);
  CHECK(find_invalid_utf8("\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf") == kAllValid);
  CHECK(find_invalid_utf8("\xf0\x90\x80\x80\xf4\x8f\xbf\xbf") == kAllValid);
}

TEST_CASE("text holds no NUL, though UTF-8 does: UTF-16 would read as such") {
  CHECK(find_no_text("né\x7f\n") == kAllValid);
  CHECK(find_no_text(std::string_view("a\0b\0", 4)) == 1);
  CHECK(find_no_text(std::string_view("\0\xff", 2)) == 0);
  CHECK(find_no_text(std::string_view("a\xff\0", 3)) == 1);
  CHECK(no_text_message('\xe9', 3, "line") ==
        "invalid UTF-8 at byte 3 of the line: 0xe9; if it is LATIN1, try iconv -f LATIN1 -t UTF-8");
  CHECK(no_text_message('\0', 2, "file") ==
        "a NUL at byte 2 of the file: 0x00; if it is UTF-16, try iconv -f UTF-16 -t UTF-8");
  CHECK(no_text_message('\xff', 1, "file") ==
        "invalid UTF-8 at byte 1 of the file: 0xff; if it is UTF-16, try iconv -f UTF-16 -t UTF-8");
}

TEST_CASE("invalid UTF-8 is found at its first byte") {
  const char* const invalid[] = {
      "\x80",              // a lone continuation byte
      "\xbf",              //
      "\xc0\x80",          // NUL in two bytes
      "\xc1\xbf",          // overlong, two bytes
      "\xe0\x9f\xbf",      // overlong, three bytes
      "\xf0\x8f\xbf\xbf",  // overlong, four bytes
      "\xed\xa0\x80",      // the first surrogate
      "\xed\xbf\xbf",      // the last surrogate
      "\xf4\x90\x80\x80",  // U+110000
      "\xf5\x80\x80\x80",  //
      "\xff",              //
      "\xc3",              // cut off
      "\xe2\x82",          //
      "\xf0\x9f\x98",      //
      "\xc3(",             // the continuation is missing
      "\xe2\x28\xa1",      //
      "\xf0\x9f\x98(",     //
  };
  for (const char* bytes : invalid) {
    CAPTURE(bytes);
    CHECK(find_invalid_utf8("é" + std::string(bytes)) == 2);
    CHECK(find_invalid_utf8("é" + std::string(bytes) + "abcd") == 2);
  }
}

TEST_CASE("a step is a code point, a code point's part at the end, or a run replaced as one") {
  const auto steps = [](std::string_view bytes) {
    std::string kinds;
    while (!bytes.empty()) {
      const Utf8Step step = next_utf8(bytes);
      kinds += "wui"[step.kind] + std::to_string(step.length);
      bytes.remove_prefix(step.length);
    }
    return kinds;
  };
  CHECK(steps("aé€😀") == "w1w2w3w4");
  CHECK(steps("\xe2\x82") == "u2");
  CHECK(steps("\xf0\x9f\x98") == "u3");
  CHECK(steps("\xf4\x8f") == "u2");
  CHECK(steps("\xf4\x90") == "i1i1");        // above U+10FFFF
  CHECK(steps("\xed\xa0\x80") == "i1i1i1");  // a surrogate
  CHECK(steps("\xe0\x9f\xbf") == "i1i1i1");  // overlong
  CHECK(steps("\xf0\x9f\x98(") == "i3w1");   // the example of section 3.9: one U+FFFD for three bytes
  CHECK(steps("\xf0\x9f\xe2\x82\xc3") == "i2i2u1");
  CHECK(steps("\xc0\xff\xf5z") == "i1i1i1w1");
}

TEST_CASE("the length of a code point that the end cuts off is the number of its bytes") {
  CHECK(unfinished_utf8("") == 0);
  CHECK(unfinished_utf8("a") == 0);
  CHECK(unfinished_utf8("😀") == 0);
  CHECK(unfinished_utf8("a\xc3") == 1);
  CHECK(unfinished_utf8("a\xf0\x9f") == 2);
  CHECK(unfinished_utf8("\xf0\x9f\x98") == 3);
  CHECK(unfinished_utf8("\xed\xa0") == 0);      // would become a surrogate
  CHECK(unfinished_utf8("\xe2\x82\xe2") == 1);  // of two, the last
  CHECK(unfinished_utf8("\x80\x80\x80\x80") == 0);
}

TEST_CASE("text splits into code points that decode to their numbers") {
  const auto points = split_code_points("aé€😀");
  REQUIRE(points.size() == 4);
  CHECK(points[1] == "é");
  CHECK(points[3] == "😀");
  CHECK(decode_code_point(points[0]) == U'a');
  CHECK(decode_code_point(points[1]) == U'é');
  CHECK(decode_code_point(points[2]) == U'€');
  CHECK(decode_code_point(points[3]) == U'😀');
  CHECK(decode_code_point("\xe2\x80") == U'\ufffd');
}

TEST_CASE("words lie between white space of any kind, no-break spaces included") {
  const auto words = split_white_space("  Ça va\u00a0bien\u202f?\tOui\u3000");
  const std::vector<std::string_view> expected = {"Ça", "va", "bien", "?", "Oui"};
  CHECK(words == expected);
  CHECK(split_white_space(" \u00a0\n").empty());
  CHECK(trim_end("a b \u202f\n") == "a b");
  CHECK(trim_end(" \t").empty());
}

TEST_CASE("characters have the class of their general category, as many as their version of Unicode says") {
  for (const auto& [text, kind] : {std::pair("aé日ﬁ", CharacterClass::letter),
                                   {"0²½Ⅷ", CharacterClass::number},
                                   {" \t\v\u0085\u00a0\u3000", CharacterClass::space},
                                   {"!_\u0301’€\u200b\ufeff", CharacterClass::other}}) {
    for (const std::string_view point : split_code_points(text)) {
      CAPTURE(point);
      CHECK(character_class(decode_code_point(point)) == kind);
    }
  }
  // Letters and numbers. Those of 16.0 are also what tiktoken 0.14 finds.
  const std::map<std::string, std::pair<int, int>> versions = {{"14.0.0", {131756, 1791}},
                                                               {"15.0.0", {136104, 1831}},
                                                               {"15.1.0", {136726, 1831}},
                                                               {"16.0.0", {141028, 1911}}};
  std::map<CharacterClass, int> counts;
  for (char32_t point = 0; point < 0x110000; ++point) ++counts[character_class(point)];
  const auto version = versions.find(utf8proc_unicode_version());
  if (version != versions.end()) {
    CHECK(counts[CharacterClass::letter] == version->second.first);
    CHECK(counts[CharacterClass::number] == version->second.second);
  }
  CHECK(counts[CharacterClass::space] == 25);
}
