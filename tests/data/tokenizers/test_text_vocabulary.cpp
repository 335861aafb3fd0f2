#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/text_vocabulary.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

namespace {

using Pieces = std::vector<std::string>;

/// A folder with a file of that name.
struct NamedFile : TemporaryFolder {
  NamedFile(const std::string& name, const std::string& content) : path(file(name)) {
    write_bytes(path, content);
  }
  std::string path;
};

Pieces read(const std::string& name, const std::string& content) {
  return read_text_vocabulary(NamedFile(name, content).path);
}

/// The message without the file's name.
std::string refusal(const std::string& name, const std::string& content) {
  const NamedFile file(name, content);
  const std::string message = message_of<DataError>([&] { load_text_vocabulary(file.path); });
  REQUIRE(message.find(file.path) == 0);
  return message.substr(file.path.size());
}

}  // namespace

TEST_CASE("fairseq's dict.txt: ids are the same, as it too has four special ones before the first line") {
  const NamedFile file("dict.txt", "the 120\n, 80\nhou@@ 7\nse 7\nmadeupword0000 0\n");
  CHECK(read_text_vocabulary(file.path) == Pieces{"the", ",", "hou@@", "se", "madeupword0000"});
  const auto tokenizer = load_text_vocabulary(file.path);
  CHECK(tokenizer->vocabulary_size() == 9);
  CHECK(tokenizer->encode("the hou@@  se , x") == std::vector<std::int32_t>{4, 6, 7, 5, kUnknown});
  CHECK(tokenizer->decode({kBegin, 4, 6, 7, kUnknown, 5, kEnd, 4}) == "the hou@@ se ⁇ ,");
}

TEST_CASE("Marian's vocab.yml: pieces by id, bare and quoted, without its special ones") {
  CHECK(read("vocab.yml",
             "</s>: 0\n<unk>: 1\nthe: 3\n\",\": 2\n'it''s': 5\n\"a \\\"b\\\" \\u00e9\": 4\n\":\": 6\n") ==
        Pieces{",", "the", "a \"b\" é", "it's", ":"});
}

TEST_CASE("Marian's vocab.yml is YAML: all escapes, comments, keys of two lines, the end of a document") {
  const std::string long_piece(2000, 'x');
  CHECK(read("vocab.yml", "# a vocabulary\n---\n</s>: 0\n\n\"\\x84\\U0001F600\\e\": 1  # odd\n? " +
                              long_piece + "\n: 2\n~: 3\nnull: 4\n\"#\": 5\n...\n\n\n") ==
        Pieces{"\u0084\U0001F600\x1b", long_piece, "~", "null", "#"});
  CHECK(read("vocab.yaml", "\xef\xbb\xbf{\"b\": 1,\r\n \"a\": 0}\r\n") == Pieces{"a", "b"});
}

TEST_CASE("a piece per line") {
  CHECK(read("own.vocab", "</s>\n<unk>\nthe\ncat\n") == Pieces{"the", "cat"});
  CHECK(read("own.txt", "<s>\n<pad>\ncat\r\n") == Pieces{"cat"});
}

TEST_CASE("its tokenizer is saved in a file of ours, and loads to the same") {
  const NamedFile file("dict.txt", "a 3\nb 2\n");
  const auto tokenizer = load_text_vocabulary(file.path);
  const auto loaded = parse_tokenizer(sentence_tokenizers(), tokenizer->serialize(), "it");
  CHECK(loaded->serialize() == tokenizer->serialize());
  CHECK(loaded->encode("b a c") == std::vector<std::int32_t>{5, 4, kUnknown});
}

TEST_CASE("other files are refused by name and line") {
  CHECK(refusal("v.yml", "a: 0\nb: 2\n") ==
        ":2: has the id 2, but the ids of 2 pieces must be 0 to 1, each once");
  CHECK(refusal("v.yml", "a: 0\nb: 0\n").find(":2: has the id 0") == 0);
  CHECK(refusal("v.yml", "a: 0\nb: x\n") == ":2: is not `piece: id`");
  CHECK(refusal("v.yml", "a: 0\n? [b, c]\n: 1\n") == ":2: is not `piece: id`");
  CHECK(has(refusal("v.yml", "a: 0\nb\n"), "is not YAML: could not find expected ':'"));
  CHECK(has(refusal("v.yml", "\"a: 0\n"), "is not YAML: "));
  CHECK(has(refusal("v.yml", "a: 0\n\xff: 1\n"), ": is not YAML: invalid leading UTF-8 octet"));
  CHECK(refusal("v.yml", "- a\n- b\n") == ": is not a list of `piece: id`");
  CHECK(refusal("v.yml", "# nothing\n") == ": is empty");
  CHECK(refusal("dict.txt", "a 3\nb\n") == ":2: is not `piece count`, as the first line is");
  CHECK(refusal("dict.txt", "a 3\nb x\n").find(":2: is not") == 0);
  CHECK(refusal("dict.txt", " 3\n").find(":1: is not") == 0);
  CHECK(has(refusal("s.vocab", "a\t-1.5\n"), "try the .model file"));
  CHECK(has(refusal("dict.txt", "a 3\na 2\n"), "\"a\" twice"));
  CHECK(refusal("v.txt", "<s>\n</s>\n") == ": holds no pieces");
}

TEST_CASE("the name says what a file is") {
  for (const char* name : {"vocab.yml", "x/vocab.yaml", "dict.en.txt", "s.vocab"})
    CHECK(is_text_vocabulary(name));
  for (const char* name : {"spm.model", "vocab", "txt"}) CHECK_FALSE(is_text_vocabulary(name));
}
