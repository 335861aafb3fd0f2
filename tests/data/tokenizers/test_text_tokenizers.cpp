#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/tests/data/temporary_file.h>
#include <tapeformer/tests/data/tokenizers/pieces_of_text.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

namespace {

const std::string kText = "To be, or not to be:\nthat is the question.  L'\u00e9t\u00e9 \U0001f600!\n";

/// One of each kind that can be trained.
std::vector<std::unique_ptr<Tokenizer>> tokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> all;
  for (const TokenizerKind& kind : text_tokenizers())
    if (kind.train) all.push_back(kind.train(text_in({kText}), 300));
  REQUIRE(all.size() == 4);
  return all;
}

}  // namespace

TEST_CASE(
    "every kind gives the text back, and in pieces it has the same ids, all below the vocabulary's size") {
  for (const auto& tokenizer : tokenizers()) {
    CAPTURE(tokenizer->kind());
    const Ids ids = tokenizer->encode(kText);
    CHECK(tokenizer->decode(ids) == kText);
    for (std::size_t step = 1; step < kText.size(); ++step)
      CHECK(ids_of_pieces(*tokenizer, kText, [&](std::size_t) { return step; }) == ids);
    for (const std::int32_t id : ids) CHECK((id >= 0 && id < tokenizer->vocabulary_size()));
    CHECK(tokenizer->encode("").empty());
    CHECK(tokenizer->decode({}).empty());
    CHECK(tokenizer->safe_cut("") == 0);
    for (const Index other : {Index{-1}, tokenizer->vocabulary_size()})
      CHECK_THROWS_AS(tokenizer->bytes_of(static_cast<std::int32_t>(other)), DataError);
  }
}

TEST_CASE("a file brings back the same tokenizer") {
  for (const auto& tokenizer : tokenizers()) {
    CAPTURE(tokenizer->kind());
    const TemporaryFile file(tokenizer->serialize());
    const auto loaded = load_tokenizer(text_tokenizers(), file.path());
    CHECK(loaded->kind() == std::string(tokenizer->kind()));
    CHECK(loaded->vocabulary_size() == tokenizer->vocabulary_size());
    CHECK(loaded->begin() == tokenizer->begin());
    CHECK(loaded->end() == tokenizer->end());
    CHECK(loaded->encode(kText) == tokenizer->encode(kText));
    CHECK(loaded->serialize() == tokenizer->serialize());
  }
}

TEST_CASE("tokenizers that are not for language models are refused by name") {
  const auto error_of = [](const std::string& content) {
    return message_of<DataError>([&] { parse_tokenizer(text_tokenizers(), content, "t"); });
  };
  CHECK(error_of(write_tokenizer_file("word", "[]")) ==
        "t: holds a tokenizer of kind word; one of kind character, byte, bpe, sentencepiece, "
        "tokenizer_json or controls is needed here");
  CHECK(error_of(write_tokenizer_file("byte", "x")) ==
        "t: a byte tokenizer's file holds no payload; got 1 byte");
  CHECK(message_of<DataError>([] { load_tokenizer(text_tokenizers(), "/nonexistent/t"); }) ==
        "/nonexistent/t: cannot be opened: No such file or directory");
}
