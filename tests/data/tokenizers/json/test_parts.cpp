#include <tapeformer/data/tokenizers/json/parts.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>

#include <string>

using namespace tapeformer;
using namespace tapeformer::tokenizer_json;

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
  CHECK(normal({{"type", "Replace"}, {"pattern", {{"Regex", "x*"}}}, {"content", "-"}}, "axb") == "-a-b-");
  const Json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  CHECK(normal({{"type", "Sequence"}, {"normalizers", {twice, twice}}}, "ab") == "aaaab");
  const std::string bert = "\u00c9 \u4e00\tx\u200d\ufffd";
  CHECK(normal({{"type", "BertNormalizer"}}, bert) == "e  \u4e00  x");
  CHECK(normal({{"type", "BertNormalizer"}, {"strip_accents", false}, {"handle_chinese_chars", false}},
               bert) == "\u00e9 \u4e00 x");
}

TEST_CASE("marks come in canonical order, however many there are") {
  const auto repeated = [](const std::string& text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  const auto normal = [](const char* type, const std::string& text) {
    return make_normalizer({{"type", type}})(text);
  };
  const std::string above = "\u0301", below = "\u0323";  // of classes 230 and 220
  for (const int count : {1, 2, 3, 200'000}) {           // hours, were that the square of them
    const std::string mixed = repeated(above + below, count);
    const std::string sorted = repeated(below, count) + repeated(above, count);
    for (const char* type : {"NFD", "NFKD"}) CHECK((normal(type, "b" + mixed + "c") == "b" + sorted + "c"));
    const std::string composed = "\u1ea1" + sorted.substr(below.size());
    for (const char* type : {"NFC", "NFKC"}) CHECK((normal(type, "a" + mixed) == composed));
    CHECK((normal("BertNormalizer", "A" + mixed) == "a"));
    // A sign of class 0 whose parts, of classes 129 and 130, are sorted too.
    CHECK(
        (normal("NFC", repeated("\u0f73", count)) == repeated("\u0f71", count) + repeated("\u0f72", count)));
  }
  CHECK(normal("NFC", "\u1112\u1161\u11ab\u0344") == "\ud55c\u0308\u0301");
  CHECK(normal("NFKC", "\ufdfa").size() == 33);
}

TEST_CASE("an empty map changes nothing, and a damaged one is refused") {
  CHECK(make_precompiled_normalizer("")("\ufb01") == "\ufb01");
  for (const char* damaged : {"?", "AAAA", "AQAAAAAA", "/////w=="})
    CHECK_THROWS_AS(make_precompiled_normalizer(damaged), UnsupportedPart);
}

// Other behaviours are in the golden values.
TEST_CASE("splits remove matches, or what is between them") {
  const auto split = [](const char* behavior, bool invert) {
    std::vector<Piece> pieces = {{"-ab--c-", true}};
    make_splitter(
        {{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}})(
        pieces);
    std::string text;
    for (const Piece& piece : pieces) text += (piece.begins_text ? "^" : "|") + piece.text;
    return text;
  };
  CHECK(split("Removed", false) == "|ab|c");
  CHECK(split("Removed", true) == "^-|-|-|-");
  CHECK_THROWS_AS(split("Other", false), UnsupportedPart);
}

TEST_CASE("matches and the gaps between them are the whole text") {
  const auto parts = [](const Matcher& matches, const std::string& text) {
    std::string all;
    for (const Match& match : matches(text))
      all += (match.is_match ? "[" : "(") + std::string(match.text) + (match.is_match ? "]" : ")");
    return all;
  };
  CHECK(parts(make_regex("a+"), "baac") == "(b)[aa](c)");
  CHECK(parts(make_regex("x*"), "\u00e4bx") == "[](\u00e4)[](b)[x]");
  CHECK(parts(make_regex(R"(\s)"), "a\u0085b\u180ec") == "(a)[\u0085](b\u180ec)");
  CHECK(parts(make_regex(R"([^\s\w])"), "a.\u0301") == "(a)[.](\u0301)");
  CHECK(parts(make_regex(R"(\S\W)"), "a.") == "[a.]");
  CHECK(parts(make_matcher({{"String", "ab"}}), "ababc") == "[ab][ab](c)");
  CHECK(parts(make_regex("a"), "").empty());
  CHECK(parts(make_regex("^a"), "a\nab") == "[a](\n)[a](b)");
  CHECK(parts(make_regex(R"(\w)"), "a\u00b2\u2460") == "[a][\u00b2](\u2460)");
  CHECK(parts(make_regex(R"([\w])"), "a\u00b2\u2460") == "[a](\u00b2\u2460)");
  CHECK(parts(make_regex(R"(\p{Han}\P{Han})"), "\u6f22\u3001\u6f22") == "[\u6f22\u3001](\u6f22)");
  CHECK(parts(make_regex(R"([^]\s]\x{62}+)"), "]b abb") == "(]b )[abb]");
  for (const char* other : {"(a", R"(\bb)", R"([\S])", "[[a]b]", R"(\h)", "(?m)a", "(?im:a)", "[a&&b]",
                            "a{,2}", "a{2}?", "a{1,2}+", R"(\pL)", R"((a)\g1)"})
    CHECK_THROWS_AS(make_regex(other), UnsupportedPart);
  CHECK_THROWS_AS(make_matcher({{"String", ""}}), UnsupportedPart);
}

TEST_CASE("a pattern that takes too long is abandoned") {
  CHECK_THROWS_AS(make_regex("(a+)+$")(std::string(60, 'a') + "b"), DataError);
}

TEST_CASE("merges come in their order, and unknown characters as bytes or as one token") {
  Json part = {{"type", "BPE"},
               {"unk_token", "?"},
               {"vocab", {{"?", 0}, {"a", 1}, {"b", 2}, {"c", 3}, {"bc", 4}, {"ab", 5}, {"abc", 6}}},
               {"merges", {"b c", "a b", {"a", "bc"}}}};
  const auto ids = [&](const std::string& text) {
    Ids found;
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
  part["vocab"].erase("<0xA4>");
  CHECK(ids("x\u00e4") == Ids{10 + 'x', 0});
  part["merges"] = Json::array({"a b"});
  CHECK(ids("abc") == Ids{5, 3});
  part["ignore_merges"] = true;
  CHECK(ids("abc") == Ids{6});
  const auto refusal = [&]() -> std::string {
    try {
      return make_model(part) ? "nothing was thrown" : "";
    } catch (const UnsupportedPart& part_of_file) {
      return part_of_file.what;
    }
  };
  part["merges"] = Json::array({"a x"});
  CHECK(refusal() == "merges with \"x\", which is not in the vocabulary");
  part["merges"] = Json::array({"ax"});
  CHECK(refusal() == "the merge \"ax\" of one part");
  part["dropout"] = 0.1;
  CHECK(refusal() == "a dropout of merges");
}

TEST_CASE("Unigram takes the best sum of scores, and joins unknown characters") {
  const auto ids = [](const Json& part, const std::string& text) {
    Ids found;
    make_model(part)->encode(text, found);
    return found;
  };
  const Json vocabulary = Json::parse(R"([["?", 0], ["a", -1], ["b", -1], ["ab", -1.5], ["abb", -4]])");
  const Json unigram = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocabulary}};
  CHECK(ids(unigram, "abb") == Ids{3, 2});
  CHECK(ids(unigram, "axyb") == Ids{1, 0, 2});
  CHECK(ids(unigram, "").empty());
  Json repeated = unigram;
  repeated["vocab"].push_back(Json::array({"ab", -9}));  // the last "ab" counts
  CHECK(ids(repeated, "ab") == Ids{1, 2});
  Json without = unigram;
  without.erase("unk_id");
  CHECK_THROWS_AS(ids(without, "x"), DataError);

  const Json word_piece = {{"type", "WordPiece"},
                           {"unk_token", "?"},
                           {"max_input_chars_per_word", 5},
                           {"vocab", {{"?", 0}, {"a", 1}, {"##b", 2}, {"##bc", 3}, {"ab", 4}}}};
  CHECK(ids(word_piece, "abbc") == Ids{4, 3});
  CHECK(ids(word_piece, "abbd") == Ids{0});
  CHECK(ids(word_piece, "abbbbb") == Ids{0});
}

TEST_CASE("decoders give the text that a token adds") {
  const auto decoded = [](const Json& part, const std::string& token, bool is_first) {
    return make_decoder(part)(token, is_first);
  };
  CHECK(decoded(nullptr, "a", false) == " a");
  CHECK(decoded({{"type", "ByteLevel"}}, "\u0120a\u00ff", false) == " a\xff");
  CHECK(decoded({{"type", "ByteLevel"}}, "\u4e00", false) == "\u4e00");
  CHECK(decoded({{"type", "ByteFallback"}}, "<0x0A>", false) == "\n");
  CHECK(decoded({{"type", "ByteFallback"}}, "<0xe9>", false) == "\xe9");
  CHECK(decoded({{"type", "ByteFallback"}}, "<0x0g>", false) == "<0x0g>");
  const Json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}};
  CHECK(decoded(metaspace, "_a", true) == "a");
  CHECK(decoded(metaspace, "_a", false) == " a");
  CHECK_THROWS_AS(make_decoder({{"type", "Metaspace"}, {"replacement", ""}}), UnsupportedPart);
  CHECK(decoded({{"type", "WordPiece"}}, "##a", false) == "a");
  CHECK(decoded({{"type", "WordPiece"}}, ".", false) == ".");
  CHECK(decoded({{"type", "WordPiece"}, {"cleanup", false}}, ".", false) == " .");
  const Json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const Json joined = {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, strip}}};
  const Json marked = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteLevel"}}, metaspace}}};
  CHECK_THROWS_AS(make_decoder(marked), UnsupportedPart);
  CHECK(decoded(strip, "  a", false) == " a");
  Json endless = strip;
  endless["content"] = "";
  CHECK_THROWS_AS(make_decoder(endless), UnsupportedPart);
  CHECK(decoded(joined, "  a", false) == "  a");
  CHECK(decoded(joined, "  a", true) == " a");
}
