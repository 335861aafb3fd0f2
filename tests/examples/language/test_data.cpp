#include <tapeformer/examples/language/run.h>
#include <tapeformer/tests/examples/language/language_case.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_CASE("text that is not UTF-8 is refused, or named where a tokenizer takes bytes") {
  const TemporaryFolder temporary;
  LanguageOptions options = tiny_options(temporary);
  options.training.steps = 1, options.training.warmup = 0;
  const std::string utf16("a\0b\0", 4), path = options.data.corpus[0];
  std::string text;
  for (int i = 0; i < 300; ++i) text += utf16;
  write_bytes(path, text);
  for (const std::string kind : {"character", "sentencepiece", "byte", "bpe"}) {
    CAPTURE(kind);
    const CapturedLog log;
    options.data.tokenizer = kind;
    options.data.vocabulary = 270;
    const std::string said =
        message_of<DataError>([&] { train_language_model(RunFolder(temporary.file(kind)), options, {}); });
    const bool takes_bytes = kind == "byte" || kind == "bpe";
    CHECK(has((takes_bytes ? log.text() : said),
              path + ":1: a NUL at byte 2 of the file: 0x00; if it is UTF-16"));
    CHECK(log.says("read byte by byte") == takes_bytes);
  }
}

TEST_CASE("the tokens of another run, in the place of a folder that was moved, stay there") {
  const TemporaryFolder temporary;
  const std::string run = temporary.file("run"), tokens = run + "/tokens/train.tokens";
  const auto lock = std::make_shared<const RunLock>(run);
  std::filesystem::rename(run, temporary.file("moved"));
  make_folder(run + "/tokens");
  write_bytes(tokens, "of another run");
  CHECK_THROWS_AS(discard_language_data(RunFolder(run, true, lock)), DataError);
  CHECK(read_bytes(tokens) == "of another run");
}
