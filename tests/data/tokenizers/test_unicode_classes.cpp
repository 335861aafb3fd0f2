#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/unicode_classes.h>
#include <utf8proc.h>

#include <initializer_list>
#include <string>

using namespace tapeformer;

TEST_SUITE("data/tokenizers/unicode_classes") {
  TEST_CASE("characters of each plane have the class of their general category") {
    for (const char32_t letter : {U'a', U'Z', U'ª', U'é', U'ǅ', U'ʰ', U'я', U'א', U'ا', U'अ', U'한', U'日',
                                  U'ﬁ', U'\U00010348', U'\U0001d518', U'\U00020731', U'\U0003134a'}) {
      CAPTURE(static_cast<unsigned>(letter));
      CHECK(character_class(letter) == CharacterClass::letter);
    }
    for (const char32_t number :
         {U'0', U'9', U'²', U'½', U'٣', U'Ⅷ', U'㊿', U'〇', U'\U0001d7d8', U'\U0001f10c'}) {
      CAPTURE(static_cast<unsigned>(number));
      CHECK(character_class(number) == CharacterClass::number);
    }
    for (const char32_t space :
         {U' ', U'\t', U'\n', U'\v', U'\f', U'\r', char32_t{0x85}, U'\u00a0', U'\u1680', U'\u2000', U'\u200a',
          U'\u2028', U'\u2029', U'\u202f', U'\u205f', U'\u3000'}) {
      CAPTURE(static_cast<unsigned>(space));
      CHECK(character_class(space) == CharacterClass::space);
    }
    // Marks, signs, controls, formats, private use, unassigned; what str.split() of Python takes for space
    for (const char32_t other :
         {U'!',           U'_',           U'\u0301',    U'’',           U'€',      U'❤',
          U'\U0001f600',  U'\U0001f3fd',  U'\u200d',    U'\u200b',      U'\ufeff', U'\u180e',
          char32_t{0x1c}, char32_t{0x1f}, char32_t{0},  char32_t{0x7f}, U'\ue000', U'\uffff',
          U'\U000e0067',  U'\U000f0000',  U'\U0010ffff'}) {
      CAPTURE(static_cast<unsigned>(other));
      CHECK(character_class(other) == CharacterClass::other);
    }
  }

  TEST_CASE("each version of Unicode has as many letters and numbers as it says") {
    struct Version {
      std::string number;
      int letters, numbers;
    };
    // Those of 16.0 are also what tiktoken 0.14 finds.
    const Version versions[] = {{"14.0.0", 131756, 1791},
                                {"15.0.0", 136104, 1831},
                                {"15.1.0", 136726, 1831},
                                {"16.0.0", 141028, 1911}};
    int counts[4] = {};
    for (char32_t point = 0; point < 0x110000; ++point) ++counts[static_cast<int>(character_class(point))];
    const int letters = counts[static_cast<int>(CharacterClass::letter)],
              numbers = counts[static_cast<int>(CharacterClass::number)];
    CAPTURE(utf8proc_unicode_version());
    bool is_known = false;
    for (const Version& version : versions) {
      if (version.number != utf8proc_unicode_version()) continue;
      is_known = true;
      CHECK(letters == version.letters);
      CHECK(numbers == version.numbers);
    }
    // Each version has those of the versions before it.
    if (!is_known) CHECK(letters >= versions[0].letters);
    if (!is_known) CHECK(numbers >= versions[0].numbers);
    CHECK(counts[static_cast<int>(CharacterClass::space)] == 25);
  }
}
