#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>
#include <tapeformer/tests/data/temporary_file.h>
#include <tapeformer/tests/data/tokenizers/byte_pair_golden.h>
#include <tapeformer/tests/reference/text.h>
#include <nlohmann/json.hpp>

using namespace tapeformer;
using nlohmann::json;

namespace {

/// Only the bytes, followed by more tokens.
std::string vocabulary_with(const std::vector<std::string>& more) {
  json vocabulary;
  for (const unsigned char byte : byte_pair_order()) {
    vocabulary[byte_pair_characters({reinterpret_cast<const char*>(&byte), 1})] =
        static_cast<int>(vocabulary.size());
  }
  for (const std::string& token : more) vocabulary[token] = static_cast<int>(vocabulary.size());
  return vocabulary.dump();
}

}  // namespace

TEST_CASE("printable bytes map to themselves, the others to U+0100 and up") {
  CHECK(byte_pair_characters("!~\xa1\xff") == "!~¡ÿ");
  CHECK(byte_pair_characters(std::string_view("\0\n \x7f\xa0\xad", 6)) == "ĀĊĠġłŃ");
  const auto order = byte_pair_order();
  CHECK(order[94] == 0xa1);
  CHECK(order[187] == 0xff);
  CHECK(order[220] == ' ');
}

TEST_CASE("files that were written are read to the same tokenizer") {
  const BytePairGolden& golden = byte_pair_golden();
  const TemporaryFile vocabulary(golden.vocabulary), merges(golden.merges);
  const auto tokenizer = load_byte_pair_tokenizer(vocabulary.path(), merges.path());
  const BytePairFiles files = byte_pair_files(*tokenizer);
  CHECK(json::parse(files.vocabulary) == json::parse(golden.vocabulary));
  CHECK(files.merges == golden.merges);
  for (const BytePairGolden::Case& one : golden.cases) CHECK(tokenizer->encode(one.bytes) == one.ids);
}

TEST_CASE("ids need not be in the order of the merges, and names of controls may be any text") {
  json vocabulary = json::parse(vocabulary_with({"<|endoftext|>", "ab", "<péd> \"\n\""}));
  std::swap(vocabulary["ab"], vocabulary["!"]);
  const BytePairTokenizer tokenizer(parse_byte_pair_files(vocabulary.dump(), "v", "a b\r\n", "m"));
  CHECK(tokenizer.encode("ab!") == std::vector<std::int32_t>{0, 257});
  CHECK(tokenizer.end() == 256);
  CHECK(tokenizer.bytes_of(258).empty());
  const BytePairFiles files = tokenizer.files();
  CHECK(json::parse(files.vocabulary) == vocabulary);
  CHECK(files.merges == "#version: 0.2\na b\n");
  CHECK(parse_tokenizer(text_tokenizers(), tokenizer.serialize(), "t")->vocabulary_size() == 259);
  vocabulary = json::parse(vocabulary_with({"ab"}));
  std::swap(vocabulary["ab"], vocabulary["!"]);
  CHECK(BytePairTokenizer(parse_byte_pair_files(vocabulary.dump(), "v", "a b", "m")).bytes_of(256) == "!");
}

TEST_CASE("a first merge may begin with a number sign") {
  const BytePairTokenizer tokenizer(parse_byte_pair_files(vocabulary_with({"#v"}), "v", "# v", "m"));
  CHECK(tokenizer.encode("#v").size() == 2);  // two words
  CHECK(tokenizer.files().merges == "#version: 0.2\n# v\n");
}

TEST_CASE("a malformed vocabulary is refused") {
  const auto error_of = [](const std::string& vocabulary) {
    return message_of<DataError>([&] { parse_byte_pair_files(vocabulary, "v", "", "m"); });
  };
  for (const char* other : {"[", "[0,1]", "7", R"({"a": 0, "a": 0})"})
    CHECK(error_of(other).find("v: is not a JSON object of tokens and their ids") == 0);
  CHECK(error_of(R"({"a": "b"})") ==
        "v: has 1 token, so their ids must be 0 to 0, each once; \"a\" has \"b\"");
  for (const char* id : {"0", "2", "-1", "0.5", "18446744073709551615"})
    CHECK(has(error_of(R"({"a": 0, "b": )" + std::string(id) + "}"), "\"b\" has " + std::string(id)));
  CHECK(error_of(R"({"a": 0})") == "v: has no token for byte 0, \"Ā\"");
  CHECK(message_of<DataError>([] { load_byte_pair_tokenizer("/nonexistent/v", "/nonexistent/m"); }) ==
        "/nonexistent/v: cannot be opened: No such file or directory");
  const TemporaryFile vocabulary(vocabulary_with({})), merges("");
  CHECK(message_of<DataError>([&] { load_byte_pair_tokenizer(vocabulary.path(), merges.path()); }) ==
        merges.path() + ": is empty");
}

TEST_CASE("a merge that does not fit is refused with its line") {
  const auto error_of = [](const std::string& merges) {
    return message_of<DataError>([&] {
      parse_byte_pair_files(vocabulary_with({"ab", "abc", "x y"}), "v", merges, "m");
    });
  };
  CHECK(error_of("#version: 0.2\na b\nab c\n") == "nothing was thrown");
  CHECK(error_of("") == "nothing was thrown");
  CHECK(error_of("a b\nabc\n") == "m:2: a merge must be two tokens with a space between them; got \"abc\"");
  CHECK(error_of("a b\n\nab d\n") == "m:3: makes \"abd\", which v does not have");
  CHECK(error_of("ab c\na b\n") == "m:1: \"ab\" is not a byte, and no earlier line makes it");
  CHECK(error_of("a b\nab c\na b\n") == "nothing was thrown");  // of equal merges the last counts
  CHECK(error_of("a b\n#version: 0.2\n").find("m:2: ") == 0);
}

TEST_CASE("only byte pairs have files") {
  CHECK(message_of<DataError>([] { byte_pair_files(*make_byte_tokenizer()); }) ==
        "[tokenizer] only a bpe tokenizer has merges; got kind byte");
  CHECK(message_of<DataError>([] {
          parse_tokenizer(text_tokenizers(), "tapeformer-tokenizer-1 bpe 0 cbf29ce484222325\n", "t");
        }).find("t: is not a JSON object of tokens") == 0);
}
