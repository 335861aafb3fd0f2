#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/sentencepiece_model.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_CASE("training twice gives the same model, which keeps every space") {
  const std::vector<std::string> sentences = {"a cat and a dog", "a dog and  a bat", "the cat sat on a mat"};
  const auto trained = [&](const char* size) {
    return train_sentencepiece({{"model_type", "bpe"}, {"vocab_size", size}}, sentences);
  };
  const SentencePieceModel model(trained("30"), "m");
  CHECK(model.content() == trained("30"));
  for (const std::string& sentence : sentences) CHECK(model.decode(model.encode(sentence)) == sentence);
  CHECK_THROWS_AS(trained("4"), DataError);
  CHECK_THROWS_AS(SentencePieceModel("junk", "m"), DataError);
}
