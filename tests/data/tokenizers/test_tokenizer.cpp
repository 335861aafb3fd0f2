#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

TEST_CASE("kinds are found by name, and read-only kinds are not offered") {
  CHECK(tokenizer_kind(text_tokenizers(), "bpe").in_files == "bpe");
  CHECK(tokenizer_kind(sentence_tokenizers(), "bpe").in_files == "sentencepiece");
  CHECK(find_kind(text_tokenizers(), "bpe") == &tokenizer_kind(text_tokenizers(), "bpe"));
  CHECK(find_kind(text_tokenizers(), "word") == nullptr);
  CHECK(message_of<DataError>([] { tokenizer_kind(sentence_tokenizers(), "syllable"); }) ==
        "[tokenizer] the kind must be word, space, character, bpe, unigram or marian; got \"syllable\"");
  CHECK(message_of<DataError>([] { tokenizer_kind(text_tokenizers(), "controls"); }) ==
        "[tokenizer] the kind must be character, byte, bpe or sentencepiece; got \"controls\"");
}

TEST_CASE("a kind has no begin, end or other names unless it says so") {
  const auto bytes = make_byte_tokenizer();
  CHECK_FALSE(bytes->begin());
  CHECK_FALSE(bytes->end());
  CHECK(bytes->ends().empty());
  CHECK_FALSE(bytes->find("</s>"));
  CHECK(bytes->piece(65) == "A");
  CHECK(&bytes->plain() == bytes.get());
}
