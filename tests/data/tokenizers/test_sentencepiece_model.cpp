#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/sentencepiece_model.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

namespace {

const std::vector<std::string> kModelSentences = {"a cat and a dog", "a dog and  a bat",
                                                  "the cat sat on a mat"};

std::string trained(const char* size, const char* byte_fallback = "false") {
  return train_sentencepiece({{"model_type", "bpe"}, {"vocab_size", size}, {"byte_fallback", byte_fallback}},
                             kModelSentences);
}

}  // namespace

TEST_SUITE("data/tokenizers/sentencepiece_model") {
  TEST_CASE("training twice gives the same model, which keeps every space") {
    CHECK(trained("30") == trained("30"));
    const SentencePieceModel model(trained("30"), "m");
    CHECK(model.content() == trained("30"));
    CHECK(model.size() <= 30);
    for (const std::string& sentence : kModelSentences)
      CHECK(model.decode(model.encode(sentence)) == sentence);
  }

  TEST_CASE("it knows its special pieces and its bytes") {
    const SentencePieceModel model(trained("300", "true"), "m");
    CHECK(model.unknown() == 0);
    CHECK(model.begin() == 1);
    CHECK(model.end() == 2);
    CHECK(model.is_control(1));
    CHECK_FALSE(model.is_control(0));
    CHECK(model.piece(3) == "<0x00>");
    CHECK(model.is_byte(3));
    CHECK_FALSE(model.is_byte(model.encode("a").back()));
  }

  TEST_CASE("other files than models, and too small a vocabulary, are refused") {
    CHECK(message_of<DataError>([] {
            SentencePieceModel("junk", "m");
          }).find("m: is not a SentencePiece model") == 0);
    CHECK(message_of<DataError>([] {
            trained("4");
          }).find("[tokenizer] SentencePiece cannot learn 4 pieces from 3 ") == 0);
  }
}
