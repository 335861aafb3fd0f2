#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/prepared_tokens.h>
#include <tapeformer/tests/nn/file_size_limit.h>
#include <tapeformer/tests/nn/temporary_folder.h>

using namespace tapeformer;

namespace {

using Ids = std::vector<std::int32_t>;

/// One id a line, from all of its bytes: where a text is cut shows. Its file is that of a byte tokenizer,
/// which has as many ids.
class LineTokenizer : public TextTokenizer {
 public:
  explicit LineTokenizer(bool marks) : marks_(marks) {}
  void encode(std::string_view text, Ids& ids) const override {
    while (!text.empty()) {
      const std::string_view line =
          text.substr(0, text.find('\n') == text.npos ? text.npos : text.find('\n') + 1);
      if (line == "?\n") throw DataError("[lines] no question marks");
      ids.push_back(static_cast<std::int32_t>(hash_text(line) % 254));
      text.remove_prefix(line.size());
    }
  }
  using TextTokenizer::encode;
  std::string bytes_of(std::int32_t) const override { return {}; }
  Index vocabulary_size() const override { return 256; }
  std::optional<std::int32_t> begin() const override { return marks_ ? 254 : std::optional<std::int32_t>(); }
  std::optional<std::int32_t> end() const override { return marks_ ? 255 : std::optional<std::int32_t>(); }
  std::size_t safe_cut(std::string_view text) const override { return text.rfind('\n') + 1; }
  const char* kind() const override { return "byte"; }
  std::string serialize() const override { return make_byte_tokenizer()->serialize(); }

 private:
  bool marks_;
};

Ids read_all(const TokenFile& file) {
  Ids ids(static_cast<std::size_t>(file.size()));
  file.read(0, file.size(), ids.data());
  return ids;
}

std::string text_of(const TextTokenizer& tokenizer, const TokenFile& file) {
  return tokenizer.decode(read_all(file));
}

/// Lines of up to `longest` random letters.
std::string lines(std::size_t count, std::size_t longest, std::uint64_t seed) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text +=
        std::string(mix_bits(seed, i) % (longest + 1), static_cast<char>('a' + mix_bits(seed + 1, i) % 26)) +
        "\n";
  }
  return text;
}

TextSplit split_of(std::string_view text, double fraction = 0.5) {
  return TextCorpus::in_memory(text, "text").split(fraction);
}

}  // namespace

TEST_SUITE("data/prepared_tokens") {
  TEST_CASE("a text becomes a tokenizer and the tokens of two parts") {
    const TemporaryFolder folder;
    const std::string path = folder.file("made/on/the/way/"), text = "hello, worlds";
    const auto tokenizer = make_byte_tokenizer();
    const PreparedTokens made = prepare_tokens(split_of(text, 0.25), *tokenizer, path);
    CHECK(folder.count() == 1);
    for (const PreparedTokens& tokens : {made, PreparedTokens::open(path)}) {
      CHECK(std::string(tokens.tokenizer->kind()) == "byte");
      CHECK(text_of(*tokens.tokenizer, tokens.train) == "hello, wo");
      CHECK(text_of(*tokens.tokenizer, tokens.validation) == "rlds");
      CHECK(tokens.train.fingerprint() == hash_text(tokenizer->serialize()));
    }
  }

  TEST_CASE("the ids are those of the whole text, wherever its pieces are cut") {
    const TemporaryFolder folder;
    const LineTokenizer tokenizer(false);
    // Lines of bytes to megabytes: pieces are cut within them, and may have no end of a line at all.
    const std::string text =
        lines(300'000, 30, 1) + lines(4, 5'000'000, 2) + lines(100, 100'000, 3) + "the end";
    write_bytes(folder.file("file"), text);
    const TextSplit parts = TextCorpus::open({folder.file("file")}).split(0.1);
    const PreparedTokens tokens = prepare_tokens(parts, tokenizer, folder.file("tokens"));
    const std::string_view train =
        std::string_view(text).substr(0, static_cast<std::size_t>(parts.train.bytes()));
    CHECK((read_all(tokens.train) == tokenizer.encode(train)));
    CHECK((read_all(tokens.validation) == tokenizer.encode(std::string_view(text).substr(train.size()))));
  }

  TEST_CASE("files cut at random places give the ids of the whole") {
    const TemporaryFolder folder;
    const LineTokenizer tokenizer(false);
    const std::string text = lines(3000, 20, 4);
    const TextCorpus validation = TextCorpus::in_memory("x", "validation");
    for (std::uint64_t round = 0; round < 5; ++round) {
      std::vector<std::string> paths;
      for (std::size_t from = 0; from < text.size();) {
        const std::size_t bytes = 1 + mix_bits(round, from) % 2000;
        paths.push_back(folder.file("part " + std::to_string(paths.size())));
        write_bytes(paths.back(), text.substr(from, bytes));
        from += bytes;
      }
      const std::string path = folder.file("tokens" + std::to_string(round));
      const PreparedTokens tokens = prepare_tokens({TextCorpus::open(paths), validation}, tokenizer, path);
      CHECK((read_all(tokens.train) == tokenizer.encode(text)));
    }
  }

  TEST_CASE("between two documents stand the end and the begin token, where there are such") {
    const TemporaryFolder folder;
    const LineTokenizer tokenizer(true);
    const std::string first = "one\nline", second = "another\n", third = "and more";
    write_bytes(folder.file("1"), first);
    write_bytes(folder.file("2"), second);
    write_bytes(folder.file("3"), third);
    const TextSplit parts{TextCorpus::open({folder.file("")}), TextCorpus::open({folder.file("2")})};
    Ids separate;
    tokenizer.encode(first, separate);
    separate.insert(separate.end(), {255, 254});
    tokenizer.encode(second, separate);
    separate.insert(separate.end(), {255, 254});
    tokenizer.encode(third, separate);
    const PreparedTokens apart = prepare_tokens(parts, tokenizer, folder.file("apart"));
    CHECK(read_all(apart.train) == separate);
    CHECK(read_all(apart.validation) == tokenizer.encode(second));
    const PreparedTokens together = prepare_tokens(parts, tokenizer, folder.file("together"), {}, false);
    CHECK(read_all(together.train) == tokenizer.encode(first + second + third));
  }

  TEST_CASE("progress counts the bytes of both parts") {
    const TemporaryFolder folder;
    const std::string text = lines(300'000, 20, 5);
    std::vector<Index> seen;
    prepare_tokens(split_of(text), LineTokenizer(false), folder.file("tokens"), [&](Index done, Index total) {
      CHECK(total == static_cast<Index>(text.size()));
      seen.push_back(done);
    });
    CHECK(std::is_sorted(seen.begin(), seen.end()));
    CHECK(seen.size() == 4);  // each part is longer than a piece
    CHECK(seen.back() == static_cast<Index>(text.size()));
  }

  TEST_CASE("an interrupted or failed preparation leaves nothing") {
    const TemporaryFolder folder;
    const std::string text = lines(300'000, 20, 6), path = folder.file("tokens");
    const LineTokenizer tokenizer(false);
    for (const Index last : {1, 3, 4}) {
      Index calls = 0;
      const auto stop = [&](Index, Index) {
        CHECK(folder.count() == 1);
        if (++calls == last) throw Error("stop");
      };
      CHECK_THROWS_WITH_AS(prepare_tokens(split_of(text), tokenizer, path, stop), "stop", Error);
      CHECK(folder.count() == 0);
    }
    {
      const FileSizeLimit limit(1 << 16);
      CHECK_THROWS_WITH_AS(prepare_tokens(split_of(text), tokenizer, path),
                           (path + ".partial/train.tokens: cannot be written: File too large").c_str(),
                           DataError);
    }
    CHECK(folder.count() == 0);
    // What a killed process leaves is no obstacle.
    std::filesystem::create_directory(path + ".partial");
    write_bytes(path + ".partial/train.tokens", "old");
    write_bytes(path + ".partial/validation.tokens.partial", "old");
    CHECK_NOTHROW(prepare_tokens(split_of(text), tokenizer, path));
    CHECK(folder.count() == 1);
  }

  TEST_CASE("a text that the tokenizer does not take is named") {
    const TemporaryFolder folder;
    write_bytes(folder.file("1"), "fine\nfine");
    write_bytes(folder.file("2"), "good\n" + std::string(2'000'000, 'x') + "\n?\n");
    const TextCorpus corpus = TextCorpus::open({folder.file("1"), folder.file("2")});
    CHECK_THROWS_WITH_AS(
        prepare_tokens({corpus, corpus}, LineTokenizer(true), folder.file("tokens")),
        (folder.file("2") + ": [lines] no question marks, counted from byte 5 of the file").c_str(),
        DataError);
    CHECK(folder.count() == 2);
  }

  TEST_CASE("a folder that holds something is left alone") {
    const TemporaryFolder folder;
    const LineTokenizer tokenizer(false);
    const std::string path = folder.file("tokens");
    const auto check_refused = [&] {
      CHECK_THROWS_WITH_AS(prepare_tokens(split_of("some text"), tokenizer, path),
                           (path + ": is there already; try another folder, or remove it").c_str(),
                           DataError);
    };
    write_bytes(path, "a file");
    check_refused();
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    CHECK_NOTHROW(prepare_tokens(split_of("some text"), tokenizer, path));  // an empty one is taken
    check_refused();
    CHECK(read_all(PreparedTokens::open(path).train) == tokenizer.encode("some"));
    const std::string strange = folder.file("strange");
    std::filesystem::create_directory(strange + ".partial");
    write_bytes(strange + ".partial/precious", "data");
    CHECK_THROWS_WITH_AS(
        prepare_tokens(split_of("some text"), tokenizer, strange),
        (strange + ": cannot be made: its " + strange + ".partial holds other files").c_str(), DataError);
    CHECK(read_bytes(strange + ".partial/precious") == "data");
    CHECK_THROWS_WITH_AS(prepare_tokens(split_of("some text"), tokenizer, "/proc/tokens"),
                         "/proc/tokens: cannot be made: No such file or directory", DataError);
  }

  TEST_CASE("files that do not belong together are refused") {
    const TemporaryFolder folder;
    const std::string one = folder.file("one"), other = folder.file("other");
    // Two tokenizers with as many ids.
    const auto prepare = [](const char* letters, const std::string& path) {
      const TextCorpus corpus = TextCorpus::in_memory(letters, "letters");
      prepare_tokens(corpus.split(0.5), *train_character_tokenizer(corpus.source()), path);
    };
    prepare("abcdef", one);
    prepare("uvwxyz", other);
    for (const char* name : {"/train.tokens", "/validation.tokens"}) {
      const std::string kept = read_bytes(one + name);
      write_bytes(one + name, read_bytes(other + name));
      CHECK_THROWS_WITH_AS(
          PreparedTokens::open(one),
          (one + name + ": was made with another tokenizer than " + one + "/tokenizer").c_str(), DataError);
      write_bytes(one + name, kept);
    }
    CHECK_NOTHROW(PreparedTokens::open(one));
    TokenFileWriter writer(one + "/train.tokens", 7, PreparedTokens::open(one).train.fingerprint());
    writer.finish();
    CHECK_THROWS_AS(PreparedTokens::open(one), DataError);
    for (const char* name : {"/tokenizer", "/train.tokens", "/validation.tokens"}) {
      std::filesystem::remove(other + name);
      CHECK_THROWS_WITH_AS(PreparedTokens::open(other),
                           (other + name + ": cannot be opened: No such file or directory").c_str(),
                           DataError);
      write_bytes(other + name, "x");
      CHECK_THROWS_AS(PreparedTokens::open(other), DataError);
      std::filesystem::remove_all(other);
      prepare("uvwxyz", other);
    }
  }
}
