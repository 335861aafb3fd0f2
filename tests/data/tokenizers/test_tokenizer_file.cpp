#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/tests/data/temporary_file.h>
#include <tapeformer/tests/reference/support.h>

#include <locale>
#include <string>

using namespace tapeformer;

namespace {

/// 1.234.567, as in much of Europe.
struct Grouped : std::numpunct<char> {
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

}  // namespace

TEST_SUITE("data/tokenizers/tokenizer_file") {
  TEST_CASE("a file gives back kind and payload, whatever bytes they are") {
    for (const std::string& payload : {std::string(), std::string("a\nb\n"), std::string("\0\xff", 2)}) {
      const TokenizerFile file = read_tokenizer_file(write_tokenizer_file("word", payload), "t");
      CHECK(file.kind == "word");
      CHECK(file.payload == payload);
    }
    CHECK(write_tokenizer_file("byte", "a") ==
          "tapeformer-tokenizer-1 byte 1 af63dc4c8601ec8c\na");  // FNV-1a
  }

  TEST_CASE("a program's locale does not change a file") {
    const std::string expected = write_tokenizer_file("byte", std::string(1234, 'a'));
    const std::locale before =
        std::locale::global(std::locale(std::locale::classic(), new Grouped));  // which owns it
    const std::string written = write_tokenizer_file("byte", std::string(1234, 'a'));
    const TokenizerFile file = read_tokenizer_file(written, "t");
    std::locale::global(before);
    CHECK(written == expected);
    CHECK(file.payload.size() == 1234);
  }

  TEST_CASE("damaged files are refused") {
    const auto error_of = [](const std::string& content) {
      return message_of<DataError>([&] { read_tokenizer_file(content, "t"); });
    };
    const std::string whole = write_tokenizer_file("word", "payload");
    CHECK(error_of(whole + "x") == "t: is damaged: its header promises 7 bytes, it has 8");
    CHECK(error_of(whole.substr(0, whole.find('\n'))).find("t: is damaged: its header promises 7 bytes") ==
          0);
    std::string flipped = whole;
    flipped.back() ^= 1;
    CHECK(error_of(flipped) == "t: is damaged: its checksum does not match");
    CHECK(error_of("") ==
          "t: is not a tokenizer file: it does not start with \"tapeformer-tokenizer-1 KIND\"");
    CHECK(error_of("tapeformer-tokenizer-2 word 0 0\n").find("t: is not a tokenizer file") == 0);
  }
}
