#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/sentencepiece_sentences.h>
#include <tapeformer/tests/data/temporary_file.h>
#include <tapeformer/tests/data/tokenizers/pieces_of_text.h>

#include <algorithm>

using namespace tapeformer;

namespace {

const std::vector<std::string> kPairedSentences = {
    "le petit chat noir dort", "la petite table noire", "le chien regarde le chat\u202f!",
    "la table est petite\u00a0?", "un chat et un chien dorment"};

constexpr const char* kPieceKinds[] = {"bpe", "unigram"};

std::unique_ptr<Tokenizer> trained_pieces(const std::string& kind, Index size) {
  return sentence_pieces(kind).train(text_in(kPairedSentences), size);
}

}  // namespace

TEST_CASE(
    "a vocabulary is as large as was asked, or as the text allows, and pieces that it lacks are unknown") {
  CHECK(trained_pieces("bpe", 45)->vocabulary_size() == 45);
  CHECK(trained_pieces("bpe", 60)->encode("le chat").size() < 7);  // pieces, not characters
  for (const char* kind : kPieceKinds) {
    CHECK(trained_pieces(kind, 4000)->vocabulary_size() < 200);
    const auto tokenizer = trained_pieces(kind, 45);
    CHECK(tokenizer->vocabulary_size() <= 45);
    CHECK(tokenizer->encode("漢").back() == kUnknown);
    CHECK(tokenizer->bytes_of(kUnknown) == " ⁇ ");
    CHECK(tokenizer->bytes_of(tokenizer->encode("chat").front())[0] == ' ');
  }
}

TEST_CASE("a long sentence is learnt from") {
  std::vector<std::string> sentences = kPairedSentences;
  sentences.emplace_back();
  while (sentences.back().size() < 5000) sentences.back() += "le chat ";
  sentences.back() += "漢";
  for (const char* kind : kPieceKinds)
    CHECK(sentence_pieces(kind).train(text_in(sentences), 60)->encode("漢").back() != kUnknown);
}

TEST_CASE("words that are the usual names of control pieces are words like others") {
  std::vector<std::string> sentences = kPairedSentences;
  sentences.push_back("<s> un </s> <unk> <pad> 1<\u00e9s>");
  for (const char* kind : kPieceKinds) {
    const auto tokenizer = sentence_pieces(kind).train(text_in(sentences), 100);
    for (const std::string& sentence : sentences) {
      const std::vector<std::int32_t> ids = tokenizer->encode(sentence);
      CHECK(std::count(ids.begin(), ids.end(), kUnknown) == 0);
      CHECK(tokenizer->decode(ids) == sentence);
    }
  }
}

TEST_CASE("a model of SentencePiece's own trainer loads with our special ids") {
  const std::string file = trained_pieces("bpe", 45)->serialize();
  const TemporaryFile model(file.substr(file.find('\n') + 1));
  const auto tokenizer = load_sentencepiece_model(model.path());
  CHECK(tokenizer->serialize() == file);
  const TemporaryFile other("not a model");
  CHECK_THROWS_AS(load_sentencepiece_model(other.path()), DataError);
}
