#include <doctest/doctest.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/text_corpus.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/support.h>

#include <algorithm>

using namespace tapeformer;

namespace {

std::string text_of(const TextCorpus& corpus) {
  std::string text;
  corpus.source()([&](std::string_view piece) { text += piece; });
  return text;
}

std::vector<std::string> names_of(const TextCorpus& corpus) {
  std::vector<std::string> names;
  for (const TextDocument& document : corpus.documents()) names.push_back(document.name);
  return names;
}

/// A megabyte and more of characters of one to four bytes.
std::string long_text(std::size_t characters, std::uint64_t seed) {
  const std::string kinds[] = {"a", "\n", "é", "€", "\U0001f600"};
  std::string text;
  for (std::size_t i = 0; i < characters; ++i) text += kinds[mix_bits(test_seed(seed), i) % 5];
  return text;
}

std::size_t characters_of(const std::string& text) { return split_code_points(text).size(); }

void check_parts(const TextCorpus& corpus, double fraction, const std::string& train,
                 const std::string& validation) {
  const TextSplit parts = corpus.split(fraction);
  CHECK(text_of(parts.train) == train);
  CHECK(text_of(parts.validation) == validation);
  CHECK(parts.train.bytes() == static_cast<Index>(train.size()));
  CHECK(parts.validation.bytes() == static_cast<Index>(validation.size()));
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "files follow each other as they are named") {
  write_bytes(folder.file("b"), "second\n");
  write_bytes(folder.file("a"), std::string("f\0rst\xff", 6));
  write_bytes(folder.file("empty"), "");
  const TextCorpus corpus = TextCorpus::open({folder.file("b"), folder.file("empty"), folder.file("a")});
  CHECK(text_of(corpus) == "second\n" + std::string("f\0rst\xff", 6));
  CHECK(corpus.bytes() == 13);
  CHECK(names_of(corpus) == std::vector<std::string>{folder.file("b"), folder.file("a")});
  CHECK(corpus.description() == "2 files (" + folder.file("b") + ", " + folder.file("a") + "), 13 bytes");
  CHECK(text_of(corpus) == text_of(corpus));
}

TEST_CASE_FIXTURE(InFolder, "the text files of a folder are taken in order, and the rest is counted") {
  for (const char* name : {"b", "b/deep", "b/deep/er", ".git", "b-", "none"}) {
    std::filesystem::create_directory(folder.file(name));
  }
  write_bytes(folder.file("z.txt"), "6");
  write_bytes(folder.file("a.txt"), "1 é");
  write_bytes(folder.file("b/2"), "2");
  write_bytes(folder.file("b/deep/er/3"), "3");
  write_bytes(folder.file("b/x"), "4");
  write_bytes(folder.file("b-/5"), "5");
  write_bytes(folder.file("empty"), "");
  write_bytes(folder.file(".git/hidden"), "hidden");
  write_bytes(folder.file("b/.hidden"), "hidden");
  write_bytes(folder.file("image"), "\x89PNG");
  write_bytes(folder.file("zeros"), std::string(4, '\0'));
  write_bytes(folder.file("cut"), "text and \xe2\x82");
  write_bytes(folder.file("late"), long_text(500'000, 1) + '\xff' + long_text(500'000, 1));
  std::filesystem::create_directory_symlink(folder.file(""), folder.file("b/circle"));
  std::filesystem::create_symlink(folder.file("b/2"), folder.file("link"));
  std::filesystem::create_symlink("nowhere", folder.file("broken"));
  const TextCorpus corpus = TextCorpus::open({folder.file("")});
  CHECK(text_of(corpus) == "1 é234526");  // "b" comes before "b-"; the link is "link"
  const std::string root = folder.file("");
  CHECK(corpus.description() == "7 files (" + root + "a.txt, " + root + "b/2, " + root +
                                    "b/deep/er/3 and 4 more), 10 bytes; skipped " + "2 hidden (" + root +
                                    ".git, " + root + "b/.hidden) and 6 that are not UTF-8 text (" + root +
                                    "b/circle, " + root + "broken, " + root + "cut and 3 more)");
  CHECK(names_of(corpus)[3] == folder.file("b/x"));
  const TextCorpus hidden = TextCorpus::open({folder.file(".git"), folder.file("b")});
  CHECK(text_of(hidden) == "hidden234");
  CHECK(hidden.description().find("4 files (" + root + ".git/hidden, ") == 0);
}

TEST_CASE_FIXTURE(InFolder, "errors name the path that cannot be read") {
  const std::string none = folder.file("none"), empty = folder.file("empty"), image = folder.file("image");
  write_bytes(empty, "");
  write_bytes(image, "\xff");
  const auto refused = [](const std::vector<std::string>& paths) {
    return message_of<DataError>([&] { TextCorpus::open(paths); });
  };
  CHECK(refused({none}) == none + ": does not exist");
  CHECK(refused({"/dev/null"}) == "/dev/null: is neither a file nor a folder");
  CHECK(refused({empty}) == empty + ": holds no text: 0 files, 0 bytes");
  CHECK(refused({folder.file(""), empty}) ==
        folder.file("") + ": holds no text (nor do the others): 0 files, 0 bytes; skipped 0 hidden and " +
            "1 that is not UTF-8 text (" + image + ")");
  CHECK(refused({}) == "[corpus] no file is named: holds no text: 0 files, 0 bytes");
  CHECK_THROWS_WITH_AS(TextCorpus::in_memory("", "nothing"), "nothing: holds no text", DataError);
  write_bytes(empty, "some");
  const TextCorpus corpus = TextCorpus::open({empty});
  const auto reading = [&] { return message_of<DataError>([&] { text_of(corpus); }); };
  write_bytes(empty, "som");
  CHECK(reading() == empty + ": became shorter while it was being read");
  std::filesystem::remove(empty);
  CHECK(reading() == empty + ": cannot be opened: No such file or directory");
}

TEST_CASE_FIXTURE(InFolder, "pieces are about a megabyte and end where a code point ends") {
  for (const std::size_t shift : {0, 1, 2, 3}) {
    const std::string text = std::string(shift, 'x') + long_text(1'000'000, shift);
    write_bytes(folder.file("long"), text);
    const TextCorpus file = TextCorpus::open({folder.file("long")});
    std::size_t pieces = 0;
    file.source()([&](std::string_view piece) {
      ++pieces;
      CHECK(find_invalid_utf8(piece) == std::string_view::npos);
      CHECK(!piece.empty());
      CHECK(piece.size() <= (1 << 20) + 3);
    });
    CHECK(pieces == text.size() / (1 << 20) + 1);
    CHECK((text_of(file) == text));
  }
}

TEST_CASE_FIXTURE(InFolder, "an unfinished code point at the end, and any bytes, are handed on") {
  std::string text;
  for (std::size_t i = 0; i < 3'000'000; ++i) text += static_cast<char>(mix_bits(test_seed(9), i));
  text += "\xf0\x9f\x98";
  write_bytes(folder.file("bytes"), text);
  CHECK((text_of(TextCorpus::open({folder.file("bytes")})) == text));
  CHECK((text_of(TextCorpus::in_memory(text, "bytes")) == text));
}

TEST_CASE_FIXTURE(InFolder, "text that is not UTF-8 is reported with its line and byte") {
  const std::string good = folder.file("good"), bad = folder.file("bad"), start = long_text(700'000, 3);
  write_bytes(good, start);
  CHECK_NOTHROW(TextCorpus::open({good}).check_text());
  write_bytes(bad, start + "\nabc\xc3(");
  const auto line = std::count(start.begin(), start.end(), '\n') + 2;
  const std::string message = bad + ":" + std::to_string(line) + ": invalid UTF-8 at byte " +
                              std::to_string(start.size() + 5) +
                              " of the file: 0xc3; if it is LATIN1, try iconv -f LATIN1 -t UTF-8";
  const TextCorpus corpus = TextCorpus::open({good, bad});
  CHECK_THROWS_WITH_AS(corpus.check_text(), message.c_str(), DataError);
  CHECK_THROWS_WITH_AS(corpus.split(0.1).validation.check_text(), message.c_str(), DataError);
  CHECK_NOTHROW(corpus.split(0.6).train.check_text());
  CHECK_THROWS_WITH_AS(
      TextCorpus::in_memory("caf\xe9", "menu").check_text(),
      "menu:1: invalid UTF-8 at byte 4 of the file: 0xe9; if it is LATIN1, try iconv -f LATIN1 -t UTF-8",
      DataError);
  const std::string utf16("a\0\n\0b\0", 6);  // little-endian, without a mark
  CHECK(message_of<DataError>([&] {
          TextCorpus::in_memory(utf16, "wide").check_text();
        }).find("wide:1: a NUL at byte 2 of the file: 0x00; if it is UTF-16") == 0);
  CHECK_THROWS_WITH_AS(TextCorpus::in_memory("a", "stopped").check_text([] { throw Error("stop"); }), "stop",
                       Error);
}

TEST_CASE("the first characters are for training, the rest for validation") {
  check_parts(TextCorpus::in_memory("0123456789", "digits"), 0.1, "012345678", "9");
  check_parts(TextCorpus::in_memory("0123456789", "digits"), 0.25, "0123456", "789");
  check_parts(TextCorpus::in_memory("é€\U0001f600x", "four"), 0.5, "é€", "\U0001f600x");
  check_parts(TextCorpus::in_memory("é€\U0001f600x", "four"), 0.75, "é", "€\U0001f600x");
  const std::string text = long_text(1'500'000, 4);
  const TextSplit parts = TextCorpus::in_memory(text, "long").split(0.1);
  CHECK(characters_of(text_of(parts.train)) == 1'350'000);
  CHECK((text_of(parts.train) + text_of(parts.validation) == text));
}

TEST_CASE_FIXTURE(InFolder, "a split may fall in a file, or between two") {
  write_bytes(folder.file("a"), "éab");
  write_bytes(folder.file("b"), "€€€€");
  write_bytes(folder.file("c"), "xyz");
  const TextCorpus corpus = TextCorpus::open({folder.file("")});
  check_parts(corpus, 0.9, "é", "ab€€€€xyz");
  check_parts(corpus, 0.8, "éa", "b€€€€xyz");
  check_parts(corpus, 0.7, "éab", "€€€€xyz");
  check_parts(corpus, 0.6, "éab€", "€€€xyz");
  check_parts(corpus, 0.3, "éab€€€€", "xyz");
  check_parts(corpus, 0.1, "éab€€€€xy", "z");
  CHECK(names_of(corpus.split(0.7).train).size() == 1);
  CHECK(names_of(corpus.split(0.7).validation).size() == 2);
  CHECK(names_of(corpus.split(0.6).validation).size() == 2);
  CHECK(corpus.split(0.7).train.documents().back().ends);
  CHECK_FALSE(corpus.split(0.6).train.documents().back().ends);
  CHECK(corpus.split(0.6).train.documents().front().ends);
  CHECK(corpus.split(0.6).validation.documents().front().ends);
  check_parts(corpus.split(0.1).train, 0.5, "éab€", "€€€xy");  // a part of a part
}

TEST_CASE("bytes that are not UTF-8 are cut too") {
  check_parts(TextCorpus::in_memory("\xff\xfe\x80\x80\xc3", "bytes"), 0.5, "\xff", "\xfe\x80\x80\xc3");
  CHECK_THROWS_AS(TextCorpus::in_memory("\x80\x80\x80\x80", "bytes").split(0.5), DataError);
}

TEST_CASE("a split needs two parts") {
  const TextCorpus corpus = TextCorpus::in_memory("0123456789", "digits");
  for (const double fraction : {0.0, 1.0, -0.5, 2.0, std::nan("")}) {
    CHECK_THROWS_WITH_AS(corpus.split(fraction), doctest::Contains("must be a fraction between 0 and 1"),
                         DataError);
  }
  CHECK_THROWS_WITH_AS(corpus.split(0.0),
                       "[corpus] the validation part must be a fraction between 0 and 1; got 0", DataError);
  CHECK_THROWS_WITH_AS(
      corpus.split(0.95),
      "digits: is too short: of 10 characters, 0 would be for training and 10 for validation", DataError);
}
