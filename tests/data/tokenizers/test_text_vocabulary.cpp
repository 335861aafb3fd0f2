#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/text_vocabulary.h>
#include <tapeformer/tests/data/temporary_file.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

/// The message without the file's name.
std::string vocabulary_refusal(const std::string& content) {
  const TemporaryFile file(content);
  const std::string message = message_of<DataError>([&] { load_text_vocabulary(file.path()); });
  REQUIRE(message.find(file.path()) == 0);
  return message.substr(file.path().size());
}

}  // namespace

TEST_SUITE("data/tokenizers/text_vocabulary") {
  TEST_CASE("fairseq's dict.txt: ids are the same, as it too has four special ones before the first line") {
    const TemporaryFile file("the 120\n, 80\nhou@@ 7\nse 7\nmadeupword0000 0\n");
    const auto tokenizer = load_text_vocabulary(file.path());
    CHECK(tokenizer->vocabulary_size() == 9);
    CHECK(tokenizer->piece(8) == "madeupword0000");
    CHECK(tokenizer->encode("the hou@@  se , x") == std::vector<std::int32_t>{4, 6, 7, 5, kUnknown});
    CHECK(tokenizer->decode({kBegin, 4, 6, 7, kUnknown, 5, kEnd, 4}) == "the hou@@ se ⁇ ,");
    const auto loaded = parse_tokenizer(sentence_tokenizers(), tokenizer->serialize(), "it");
    CHECK(loaded->serialize() == tokenizer->serialize());
    CHECK(loaded->encode("se the") == std::vector<std::int32_t>{7, 4});
  }

  TEST_CASE("a piece a line, without the special ones") {
    const TemporaryFile file("<s>\n</s>\n<pad>\n<unk>\nthe\ncat\r\n");
    CHECK(load_text_vocabulary(file.path())->encode("cat the") == std::vector<std::int32_t>{5, 4});
  }

  TEST_CASE("what is none of these is refused by file and line") {
    CHECK(vocabulary_refusal("a 3\nb\n") == ":2: is not `piece count`, as the first line is");
    CHECK(vocabulary_refusal("a 3\nb x\n").find(":2: is not") == 0);
    CHECK(vocabulary_refusal(" 3\n").find(":1: is not") == 0);
    CHECK(vocabulary_refusal("a\t-1.5\n").find("try the .model file") != std::string::npos);
    CHECK(vocabulary_refusal("a 3\na 2\n").find("\"a\" twice") != std::string::npos);
    CHECK(vocabulary_refusal("<s>\n</s>\n") == ": holds no pieces");
  }

  TEST_CASE("the name says what a file is") {
    for (const char* name : {"dict.en.txt", "x/s.vocab"}) CHECK(is_text_vocabulary(name));
    for (const char* name : {"spm.model", "vocab", "txt"}) CHECK_FALSE(is_text_vocabulary(name));
  }
}
