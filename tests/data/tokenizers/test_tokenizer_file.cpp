#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/tests/reference/support.h>

#include <string>

using namespace tapeformer;

TEST_CASE("a file gives back kind and payload, whatever bytes they are") {
  for (const std::string& payload : {std::string(), std::string("a\nb\n"), std::string("\0\xff", 2)}) {
    const TokenizerFile file = read_tokenizer_file(write_tokenizer_file("word", payload), "t");
    CHECK(file.kind == "word");
    CHECK(file.payload == payload);
  }
  CHECK(write_tokenizer_file("byte", "a") == "tapeformer-tokenizer-1 byte 1 af63dc4c8601ec8c\na");  // FNV-1a
}

TEST_CASE("damaged files are refused") {
  const auto error_of = [](const std::string& content) {
    return message_of<DataError>([&] { read_tokenizer_file(content, "t"); });
  };
  const std::string whole = write_tokenizer_file("word", "payload");
  CHECK(error_of(whole + "x") == "t: is damaged: its header promises 7 bytes, it has 8");
  CHECK(error_of(whole.substr(0, whole.find('\n'))).find("t: is damaged: its header promises 7 bytes") == 0);
  std::string flipped = whole;
  flipped.back() ^= 1;
  CHECK(error_of(flipped) == "t: is damaged: its checksum does not match");
  CHECK(error_of("") == "t: is not a tokenizer file: it does not start with \"tapeformer-tokenizer-1 KIND\"");
  CHECK(error_of("tapeformer-tokenizer-2 word 0 0\n").find("t: is not a tokenizer file") == 0);
}
