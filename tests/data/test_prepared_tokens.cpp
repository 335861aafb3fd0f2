#include <doctest/doctest.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/prepared_tokens.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>
#include <tapeformer/data/tokenizers/character_tokenizer.h>
#include <tapeformer/tests/data/written_tokens.h>
#include <tapeformer/tests/nn/formats/file_size_limit.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

namespace {

/// One id per line, from all of its bytes and whether it is a text's first: it shows where a text is cut. Its
/// file is that of a byte tokenizer, which has as many ids.
class LineTokenizer : public Tokenizer {
 public:
  explicit LineTokenizer(std::optional<std::int32_t> begin = {}, std::optional<std::int32_t> end = {})
      : begin_(begin), end_(end) {}
  void encode(std::string_view text, Ids& ids) const override {
    const std::size_t first = ids.size();
    encode_rest(text, ids);
    if (ids.size() > first) ids[first] = (ids[first] + 100) % 254;
  }
  void encode_rest(std::string_view text, Ids& ids) const override {
    while (!text.empty()) {
      const std::string_view line =
          text.substr(0, text.find('\n') == text.npos ? text.npos : text.find('\n') + 1);
      if (line == "?\n") throw DataError("[lines] no question marks");
      ids.push_back(static_cast<std::int32_t>(hash_text(line) % 254));
      text.remove_prefix(line.size());
    }
  }
  using Tokenizer::encode;
  std::string bytes_of(std::int32_t) const override { return {}; }
  Index vocabulary_size() const override { return 256; }
  std::optional<std::int32_t> begin() const override { return begin_; }
  std::optional<std::int32_t> end() const override { return end_; }
  std::size_t safe_cut(std::string_view text) const override { return text.rfind('\n') + 1; }
  const char* kind() const override { return "byte"; }
  std::string serialize() const override { return make_byte_tokenizer()->serialize(); }

 private:
  std::optional<std::int32_t> begin_, end_;
};

/// Lines of up to `longest` random letters.
std::string lines(std::size_t count, std::size_t longest, std::uint64_t seed) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += std::string(mix_bits(test_seed(seed), i) % (longest + 1),
                        static_cast<char>('a' + mix_bits(test_seed(seed + 1), i) % 26)) +
            "\n";
  }
  return text;
}

TextSplit split_of(std::string_view text, double fraction = 0.5) {
  return TextCorpus::in_memory(text, "text").split(fraction);
}

/// The ids for training and for validation.
using Parts = std::pair<Ids, Ids>;

Parts prepared(const TextSplit& parts, const Tokenizer& tokenizer) {
  const TemporaryFolder folder;
  const PreparedTokens tokens = prepare_tokens(parts, tokenizer, folder.file("tokens"));
  return {ids_in(tokens.train), ids_in(tokens.validation)};
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "a text becomes a tokenizer and the tokens of two parts") {
  const std::string path = folder.file("made/on/the/way/"), text = "hello, worlds";
  const auto tokenizer = make_byte_tokenizer();
  const PreparedTokens made = prepare_tokens(split_of(text, 0.25), *tokenizer, path);
  CHECK(folder.count() == 1);
  for (const PreparedTokens& tokens : {made, PreparedTokens::open(path)}) {
    CHECK(std::string(tokens.tokenizer->kind()) == "byte");
    CHECK(tokens.train.size() == 9);
    CHECK(tokens.tokenizer->decode(ids_in(tokens.train)) == "hello, wo");
    CHECK(tokens.tokenizer->decode(ids_in(tokens.validation)) == "rlds");
    CHECK(tokens.train.fingerprint() == hash_text(tokenizer->serialize()));
  }
}

TEST_CASE_FIXTURE(InFolder, "the ids are those of the whole text, wherever its pieces are cut") {
  const LineTokenizer tokenizer;
  // Lines of bytes to megabytes: pieces are cut within them, and may have no end of a line at all.
  const std::string text =
      lines(300'000, 30, 1) + lines(4, 5'000'000, 2) + lines(100, 100'000, 3) + "the end";
  write_bytes(folder.file("file"), text);
  const TextSplit parts = TextCorpus::open({folder.file("file")}).split(0.1);
  const PreparedTokens tokens = prepare_tokens(parts, tokenizer, folder.file("tokens"));
  const std::string_view train =
      std::string_view(text).substr(0, static_cast<std::size_t>(parts.train.bytes()));
  CHECK((ids_in(tokens.train) == tokenizer.encode(train)));
  CHECK((ids_in(tokens.validation) == tokenizer.encode(std::string_view(text).substr(train.size()))));
}

TEST_CASE_FIXTURE(InFolder,
                  "begin and end tokens come before and after every document, if the tokenizer has them") {
  const std::string first = "one\nline", second = "another\n", third = "and more";
  write_bytes(folder.file("1"), first);
  write_bytes(folder.file("2"), second);
  write_bytes(folder.file("3"), third);
  const TextSplit parts{TextCorpus::open({folder.file("")}), TextCorpus::open({folder.file("2")})};
  const LineTokenizer plain, both(254, 255), begin(254, {}), end({}, 255);
  const Ids a = plain.encode(first), b = plain.encode(second), c = plain.encode(third);
  CHECK(prepared(parts, both) ==
        Parts{{254, a[0], a[1], 255, 254, b[0], 255, 254, c[0], 255}, {254, b[0], 255}});
  CHECK(prepared(parts, begin) == Parts{{254, a[0], a[1], 254, b[0], 254, c[0]}, {254, b[0]}});
  CHECK(prepared(parts, end) == Parts{{a[0], a[1], 255, b[0], 255, c[0], 255}, {b[0], 255}});
  CHECK(prepared(parts, plain) == Parts{plain.encode(first + second + third), b});
}

TEST_CASE_FIXTURE(
    InFolder,
    "a part cut within a document has a begin or end token only where the document begins or ends") {
  const LineTokenizer tokenizer(254, 255), plain;
  const auto id = [&](const char* text) { return plain.encode(text)[0]; };
  CHECK(prepared(split_of("67890", 0.4), tokenizer) == Parts{{254, id("678")}, {id("90"), 255}});
  write_bytes(folder.file("1"), "12345");
  write_bytes(folder.file("2"), "67890");
  const TextCorpus corpus = TextCorpus::open({folder.file("")});
  CHECK(prepared(corpus.split(0.2), tokenizer) ==
        Parts{{254, id("12345"), 255, 254, id("678")}, {id("90"), 255}});
  CHECK(prepared(corpus.split(0.5), tokenizer) == Parts{{254, id("12345"), 255}, {254, id("67890"), 255}});
  // Split again, the middle of a document neither begins nor ends.
  CHECK(prepared(split_of("x67890", 0.7).validation.split(0.4), tokenizer).first == Ids{id("678")});
}

TEST_CASE_FIXTURE(InFolder, "an interrupted or failed preparation leaves nothing") {
  const std::string text = lines(300'000, 20, 6), path = folder.file("tokens");
  const LineTokenizer tokenizer;
  for (const Index last : {1, 2}) {
    Index calls = 0;
    const auto stop = [&](Index done, Index total) {
      CHECK(folder.count() == 1);
      CHECK(total == static_cast<Index>(text.size()));
      CHECK((done == total) == (++calls == 2));
      if (calls == last) throw Error("stop");
    };
    CHECK_THROWS_WITH_AS(prepare_tokens(split_of(text), tokenizer, path, stop), "stop", Error);
    CHECK(folder.count() == 0);
  }
  {
    const FileSizeLimit limit(1 << 16);
    CHECK_THROWS_WITH_AS(prepare_tokens(split_of(text), tokenizer, path),
                         (path + "/train.tokens: cannot be written: File too large").c_str(), DataError);
  }
  CHECK(folder.count() == 0);
}

TEST_CASE_FIXTURE(InFolder,
                  "whether a folder can be prepared is known before the work, which leaves nothing") {
  check_unprepared(folder.file("tokens"));
  CHECK(folder.count() == 0);
  write_bytes(folder.file("tokens"), "mine");
  CHECK_THROWS_AS(check_unprepared(folder.file("tokens")), DataError);
}

TEST_CASE_FIXTURE(InFolder, "a text that the tokenizer does not take is named") {
  write_bytes(folder.file("1"), "fine\nfine");
  write_bytes(folder.file("2"), "good\n" + std::string(2'000'000, 'x') + "\n?\n");
  const TextCorpus corpus = TextCorpus::open({folder.file("1"), folder.file("2")});
  CHECK_THROWS_WITH_AS(
      prepare_tokens({corpus, corpus}, LineTokenizer(254, 255), folder.file("tokens")),
      (folder.file("2") + ": [lines] no question marks, counted from byte 5 of the file").c_str(), DataError);
  CHECK(folder.count() == 2);
}

TEST_CASE_FIXTURE(InFolder, "damaged, mismatched and missing files are refused when the folder is opened") {
  const std::string one = folder.file("one"), other = folder.file("other");
  // Two tokenizers with as many ids.
  const auto prepare = [](const char* letters, const std::string& path) {
    const TextCorpus corpus = TextCorpus::in_memory(letters, "letters");
    prepare_tokens(corpus.split(0.5), *train_character_tokenizer(corpus.source()), path);
  };
  prepare("abcdef", one);
  prepare("uvwxyz", other);
  const auto refusal = [&](const std::string& content, const char* name) {
    const std::string kept = read_bytes(one + name);
    write_bytes(one + name, content);
    const std::string message = message_of<DataError>([&] { PreparedTokens::open(one); });
    write_bytes(one + name, kept);
    CHECK_NOTHROW(PreparedTokens::open(one));
    return message;
  };
  for (const char* name : {"/train.tokens", "/validation.tokens"}) {
    std::string damaged = read_bytes(one + name);
    damaged[64] ^= 1;
    CHECK(refusal(damaged, name) ==
          one + name +
              ": is damaged: its ids do not match the checksum in its header; try preparing the text again");
    CHECK(refusal(read_bytes(other + name), name) ==
          one + name + ": was made with a different tokenizer than " + one + "/tokenizer");
  }
  write_tokens(one + "/train.tokens", 7, {}, PreparedTokens::open(one).train.fingerprint());
  CHECK_THROWS_AS(PreparedTokens::open(one), DataError);
  for (const char* name : {"/tokenizer", "/train.tokens", "/validation.tokens"}) {
    std::filesystem::rename(other + name, other + "/away");
    CHECK(message_of<DataError>([&] { PreparedTokens::open(other); }) ==
          other + name + ": cannot be opened: No such file or directory");
    std::filesystem::rename(other + "/away", other + name);
  }
}
