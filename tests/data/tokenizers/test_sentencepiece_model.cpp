#include <tapeformer/data/tokenizers/sentencepiece_model.h>
#include <tapeformer/tests/reference/support.h>

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

TEST_CASE("a model that the library would follow out of its tables, or not expect, is refused") {
  const std::string sound = train_sentencepiece(
      {{"vocab_size", "30"}, {"normalization_rule_name", "nmt_nfkc"}}, {"a cat", "the dog"});
  CHECK(SentencePieceModel(sound, "m").decode(SentencePieceModel(sound, "m").encode("\uff43at")) == "cat");
  const auto refusal = [](const std::string& model) {
    return message_of<DataError>([&] { SentencePieceModel(model, "m"); });
  };
  const std::size_t root = sound.find("nmt_nfkc") + 8 + 4 + 4;  // after a field's header, and a size
  CHECK(refusal(std::string(sound).replace(root, 4, "\xff\xff\xff\x7f")) ==
        "m: is not a SentencePiece model: it has a precompiled_charsmap that is damaged");
  const std::string empty_piece("\x0a\x03\x0a\x01\0", 5);
  CHECK(refusal(sound + empty_piece).find("m: is not a SentencePiece model: ") == 0);
  CHECK(refusal(sound + "\x0a\x03\x0a\x01\xff") ==
        "m: is not a SentencePiece model: it has a piece that is not UTF-8");
}
