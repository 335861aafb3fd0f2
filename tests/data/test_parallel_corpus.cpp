#include <doctest/doctest.h>
#include <tapeformer/data/parallel_corpus.h>
#include <tapeformer/tests/data/temporary_file.h>
#include <tapeformer/tests/reference/support.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

using namespace tapeformer;

namespace {

using Pairs = std::vector<TextPair>;

std::string tsv_error(const std::string& content) {
  const TemporaryFile file(content);
  const std::string message = message_of<DataError>([&] { read_tab_separated(file.path()); });
  const std::string prefix = file.path();
  return message.compare(0, prefix.size(), prefix) == 0 ? message.substr(prefix.size()) : message;
}

std::string aligned_error(const std::string& source, const std::string& target) {
  const TemporaryFile a(source), b(target);
  std::string message = message_of<DataError>([&] { read_line_aligned(a.path(), b.path()); });
  for (const auto& [path, name] : {std::pair(a.path(), "SOURCE"), std::pair(b.path(), "TARGET")}) {
    for (std::size_t at; (at = message.find(path)) != std::string::npos;)
      message.replace(at, path.size(), name);
  }
  return message;
}

/// 300 sources with one to three translations each.
Pairs many_pairs() {
  Pairs pairs;
  for (int i = 0; i < 300; ++i) {
    for (int k = 0; k <= i % 3; ++k)
      pairs.push_back({"s" + std::to_string(i), "t" + std::to_string(10 * i + k)});
  }
  return pairs;
}

std::set<std::string> sources_of(const Pairs& pairs) {
  std::set<std::string> sources;
  for (const TextPair& pair : pairs) sources.insert(pair.source);
  return sources;
}

}  // namespace

TEST_CASE("tab-separated pairs lose their mark, carriage returns and extra columns") {
  const TemporaryFile file("\xef\xbb\xbfGo.\tVa !\tCC-BY 2.0\t#1\r\nI see.\tJe vois.\nNo end\tSans fin");
  CHECK(read_tab_separated(file.path()) ==
        Pairs{{"Go.", "Va !"}, {"I see.", "Je vois."}, {"No end", "Sans fin"}});
  CHECK(read_tab_separated(file.path(), true)[0] == TextPair{"Va !", "Go."});
}

TEST_CASE("a tab-separated file that cannot be used is refused with its line") {
  CHECK(tsv_error("") == ": is empty");
  CHECK(tsv_error("a\tb\nno tab here\n") == ":2: no tab between source and target; found \"no tab here\"");
  const std::string long_line(59, 'a');  // and then half of a character
  CHECK(tsv_error(long_line + "é") == ":1: no tab between source and target; found \"" + long_line + "\"");
  CHECK(tsv_error("a\tb\n\nc\td\n") == ":2: no tab between source and target; found \"\"");
  CHECK(tsv_error("a\tb\nok\t\xc3(\n") ==
        ":2: invalid UTF-8 at byte 4 of the line: 0xc3; if it is LATIN1, try iconv -f LATIN1 -t UTF-8");
  CHECK(tsv_error("a\tb\n\xffz\tc\n").find(":2: invalid UTF-8 at byte 1 of the line: 0xff") == 0);
  CHECK(tsv_error(std::string("a\tb\nc\0\td\0\n", 10)).find(":2: a NUL at byte 2 of the line: 0x00") == 0);
  const auto missing = [] { read_tab_separated("/nonexistent/pairs.tsv"); };
  CHECK(message_of<DataError>(missing) ==
        "/nonexistent/pairs.tsv: cannot be opened: No such file or directory");
  const auto folder = [] { read_tab_separated("/tmp"); };
  CHECK(message_of<DataError>(folder) == "/tmp: cannot be read: Is a directory");
}

TEST_CASE("lines of any length are read") {
  std::string content;
  std::vector<std::string> expected;
  for (const std::size_t length : {0, 1, 65534, 65535, 65536, 200000, 3}) {
    expected.push_back(std::string(length, 'a'));
    content += expected.back() + "\n";
  }
  CHECK(read_lines(TemporaryFile(content).path()) == expected);
  expected.push_back("end");
  CHECK(read_lines(TemporaryFile(content + "end").path()) == expected);
}

TEST_CASE("lines are delivered as they arrive") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  LineReader reader("/dev/fd/" + std::to_string(ends[0]));
  std::string line;
  for (const char* text : {"\xef\xbb\xbfone\r\n", "\n", "\xef\xbb\xbfthree\n"}) {
    REQUIRE(write(ends[1], text, std::strlen(text)) == static_cast<ssize_t>(std::strlen(text)));
    REQUIRE(reader.next(line));
    CHECK(line == (reader.number() == 1 ? "one" : reader.number() == 2 ? "" : "\xef\xbb\xbfthree"));
  }
  close(ends[1]);
  CHECK_FALSE(reader.next(line));
  CHECK(reader.number() == 3);
  close(ends[0]);
}

TEST_CASE("line-aligned files of unequal lengths are refused") {
  CHECK(aligned_error("a\nb\nc\n", "x\ny\n") ==
        "TARGET: has 2 lines, but SOURCE has 3; line-aligned files have the same number");
  CHECK(aligned_error("a\nb\n", "x\n\xed\xa0\x80\n") ==
        "TARGET:2: invalid UTF-8 at byte 1 of the line: 0xed; if it is LATIN1, try iconv -f LATIN1 -t UTF-8");
  CHECK(aligned_error("a\n", std::string("\0x\0\n", 4)).find("TARGET:1: a NUL at byte 1 of the line") == 0);
  CHECK(aligned_error("a\n", "") == "TARGET: is empty");
}

TEST_CASE("two files pair line by line; a tab in them counts as a space, and a no-break space is kept") {
  const TemporaryFile source("I\tsee.\r\nGo\t!\r\n"), target("Je vois\u00a0!\n\tVa\u202f!\t");
  CHECK(read_line_aligned(source.path(), target.path()) ==
        Pairs{{"I see.", "Je vois\u00a0!"}, {"Go !", " Va\u202f! "}});
  CHECK(sentence_of_line("a\tb\t") == "a b ");
  const TemporaryFile pairs("I see.\tJe vois\u00a0!\n");
  CHECK(read_tab_separated(pairs.path()) == Pairs{{"I see.", "Je vois\u00a0!"}});
}

TEST_CASE("a side of nothing but white space, of any kind, is empty") {
  for (const std::string blank : {"", "   ", "\u00a0", "\u202f \u3000"}) {
    CHECK(tsv_error("a\tb\n" + blank + "\tb\n") == ":2: the source side is empty");
    for (const char* rest : {"\n", "\tc\n"})
      CHECK(tsv_error("a\t" + blank + rest) == ":1: the target side is empty");
    CHECK(aligned_error("a\n" + blank + "\n", "x\ny\n") == "SOURCE:2: the source side is empty");
    CHECK(aligned_error("a\nb\n", "x\n" + blank + "\n") == "TARGET:2: the target side is empty");
  }
  CHECK(aligned_error("a\n\t\n", "x\ny\n") == "SOURCE:2: the source side is empty");
}

TEST_CASE("different source sentences are counted") {
  CHECK(count_sources({}) == 0);
  CHECK(count_sources({{"a", "x"}, {"b", "x"}, {"a", "y"}}) == 2);
  CHECK(count_sources(many_pairs()) == 300);
}

TEST_CASE("the word limit drops long pairs and says which side was long") {
  Pairs pairs = {{"a b", "x y"}, {"a b c", "x"}, {"a", "x\u202f? z"}, {"a b c", "x y z"}, {"a", "x"}};
  const FilterReport report = filter_by_words(pairs, 2, "f.tsv");
  CHECK(pairs == Pairs{{"a b", "x y"}, {"a", "x"}});
  CHECK(report.text(2) == "kept 2 of 5 pairs; dropped 3: 2 source over 2 words, 1 target over 2 words");
  CHECK(filter_by_words(pairs, 2, "f.tsv").text(2) == "kept 2 of 2 pairs");
  CHECK(message_of<DataError>([&] { filter_by_words(pairs, 0, "f.tsv"); }) ==
        "f.tsv: no usable pairs: kept 0 of 2 pairs; dropped 2: 2 source over 0 words, 0 target over 0 words");
}

TEST_CASE("the parts of a split share no source sentence, and held-out sentences have one reference") {
  const Pairs pairs = many_pairs();
  const CorpusSplit split = split_by_source(pairs, 40, 7, "f");
  CHECK(split.validation.size() == 20);
  CHECK(split.test.size() == 20);
  const auto train = sources_of(split.train), validation = sources_of(split.validation),
             test = sources_of(split.test);
  CHECK(validation.size() == 20);
  CHECK(test.size() == 20);
  CHECK(train.size() == 260);
  for (const std::string& source : validation) CHECK(train.count(source) + test.count(source) == 0);
  for (const std::string& source : test) CHECK(train.count(source) == 0);
  for (const Pairs* part : {&split.validation, &split.test}) {
    for (const TextPair& pair : *part) {
      const auto first = std::find_if(pairs.begin(), pairs.end(),
                                      [&](const TextPair& other) { return other.source == pair.source; });
      CHECK(*first == pair);
    }
  }
  std::size_t left = 0;
  for (const TextPair& pair : pairs) left += train.count(pair.source);
  CHECK(split.train.size() == left);
}

TEST_CASE("a split depends on its seed and not on the order of the file") {
  Pairs pairs = many_pairs();
  const CorpusSplit split = split_by_source(pairs, 40, 7, "f");
  std::reverse(pairs.begin(), pairs.end());
  const CorpusSplit reversed = split_by_source(pairs, 40, 7, "f"), other = split_by_source(pairs, 40, 8, "f");
  CHECK(sources_of(reversed.validation) == sources_of(split.validation));
  CHECK(sources_of(reversed.test) == sources_of(split.test));
  CHECK(sources_of(other.test) != sources_of(split.test));
}

TEST_CASE("a split that leaves nothing to train on is refused") {
  CHECK(split_by_source(many_pairs(), 0, 1, "f").train.size() == many_pairs().size());
  CHECK(message_of<DataError>([] { split_by_source(many_pairs(), 300, 1, "f"); }) ==
        "f: cannot hold out 300 source sentences: there are only 300 different ones");
}
