#include <doctest/doctest.h>
#include <tapeformer/data/prepared_tokens.h>
#include <tapeformer/data/token_windows.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>
#include <tapeformer/data/tokenizers/tokenizer_controls.h>
#include <tapeformer/tests/data/written_tokens.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

namespace {

/// A byte tokenizer whose documents begin with 254 and end with 255.
std::unique_ptr<Tokenizer> marked_bytes() {
  auto plain = make_byte_tokenizer();
  TokenizerControls controls = TokenizerControls::of(*plain);
  controls.begin = 254, controls.ends = {255};
  return with_controls(std::move(plain), controls, "it");
}

std::vector<Instruction> read_text(const TemporaryFolder& folder, const std::string& text) {
  const std::string path = folder.file("instructions.jsonl");
  write_bytes(path, text);
  return read_instructions({path});
}

}  // namespace

TEST_CASE_FIXTURE(InFolder, "lines of JSON are instructions, and anything else is refused with its place") {
  const auto read = read_text(folder, R"({"prompt": "1+1=", "answer": "2\n"}

{"id": 7, "completion": "é", "prompt": ""})");
  REQUIRE(read.size() == 2);
  CHECK(read[0].prompt == "1+1=");
  CHECK(read[0].answer == "2\n");
  CHECK(read[1].prompt.empty());
  CHECK(read[1].answer == "é");
  for (const char* line : {"text", "[]", R"({"prompt": "a"})", R"({"prompt": "a", "answer": 1})",
                           R"({"prompt)", R"({"prompt": "a", "answer": "b", "answer": "c"})"}) {
    CAPTURE(line);
    const std::string refusal = message_of<DataError>(
        [&] { read_text(folder, "{\"prompt\": \"a\", \"answer\": \"b\"}\n" + std::string(line) + "\n"); });
    CHECK(has(refusal, "instructions.jsonl:2: is not an instruction"));
  }
  CHECK(has(message_of<DataError>([&] { read_text(folder, "\n"); }), "jsonl: holds no instructions"));
  CHECK(message_of<DataError>([&] { read_instructions({folder.file("none")}); }) ==
        folder.file("none") + ": cannot be opened: No such file or directory");
}

TEST_CASE_FIXTURE(InFolder, "targets are the tokens of answers, and the end token after them") {
  const std::vector<Instruction> two{{"ab", "c"}, {"d", "ef"}}, one{{"g", "h"}};
  const PreparedTokens tokens = prepare_tokens(two, one, *marked_bytes(), folder.file("tokens"));
  const TokenFile train = tokens.train.with_answers();
  const TokenBatch batch = TokenWindows(train, train.size() - 1, WindowOrder::random, 1).batch(0, 1);
  CHECK(batch.inputs.to_vector<std::int32_t>() == Ids{254, 'a', 'b', 'c', 255, 254, 'd', 'e', 'f'});
  CHECK(batch.targets.to_vector<std::int32_t>() == Ids{-1, -1, 'c', 255, -1, -1, 'e', 'f', 255});
  const TokenBatch all = TokenWindows(tokens.train, train.size() - 1, WindowOrder::random, 1).batch(0, 1);
  CHECK(all.targets.to_vector<std::int32_t>() == Ids{'a', 'b', 'c', 255, 254, 'd', 'e', 'f', 255});
  const auto lacking = [&] { prepare_tokens(two, one, *make_byte_tokenizer(), folder.file("none")); };
  CHECK(message_of<DataError>(lacking).find("an answer ends with an end token, but the byte") == 0);
}

TEST_CASE_FIXTURE(InFolder, "missing marks, and marks of other tokens, are refused") {
  const TokenFile file = write_tokens(folder.file("a.tokens"), 9, {1, 2, 3});
  CHECK_THROWS_AS(file.with_answers(), DataError);
  write_tokens(folder.file("a.answers"), 2, {1, 1});
  CHECK_THROWS_AS(file.with_answers(), DataError);
}
