#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/translation_tokenizer_kinds.h>
#include <tapeformer/tests/data/temporary_file.h>

#include <algorithm>

using namespace tapeformer;

namespace {

const std::vector<std::string> kPairedSentences = {
    "le petit chat noir dort", "la petite table noire", "le chien regarde le chat\u202f!",
    "la table est petite\u00a0?", "un chat et un chien dorment"};

constexpr TokenizerKind kPieceKinds[] = {TokenizerKind::bpe, TokenizerKind::unigram};

std::unique_ptr<TranslationTokenizer> trained_pieces(TokenizerKind kind, Index size,
                                                     bool byte_fallback = false) {
  TokenizerConfig config;
  config.kind = kind;
  config.vocabulary_size = size;
  config.byte_fallback = byte_fallback;
  return train_translation_tokenizer(config, kPairedSentences);
}

}  // namespace

TEST_SUITE("data/tokenizers/translation_tokenizer_sentencepiece") {
  TEST_CASE("a vocabulary has the size that was asked for, or less where the text has no more pieces") {
    for (const TokenizerKind kind : kPieceKinds) {
      CHECK(trained_pieces(kind, 45)->vocabulary_size() <= 45);
      CHECK(trained_pieces(kind, 4000)->vocabulary_size() < 200);
    }
    CHECK(trained_pieces(TokenizerKind::bpe, 45)->vocabulary_size() == 45);
    CHECK(trained_pieces(TokenizerKind::bpe, 60)->encode("le chat").size() < 7);  // pieces, not characters
  }

  TEST_CASE("a piece that the vocabulary lacks is unknown, or spelled in bytes") {
    for (const TokenizerKind kind : kPieceKinds) {
      CHECK(trained_pieces(kind, 45)->encode("漢").back() == kUnknown);
      const auto spelling = trained_pieces(kind, 300, true);
      CHECK(spelling->encode("漢").size() >= 3);
      CHECK(spelling->decode(spelling->encode("un 漢字 \u202f!")) == "un 漢字 \u202f!");
    }
  }

  TEST_CASE("words that are the usual names of control pieces are words like others") {
    std::vector<std::string> sentences = kPairedSentences;
    sentences.push_back("<s> un </s> <unk> <pad> 1<\u00e9s>");
    for (const TokenizerKind kind : kPieceKinds) {
      TokenizerConfig config;
      config.kind = kind;
      config.vocabulary_size = 100;
      const auto tokenizer = train_translation_tokenizer(config, sentences);
      for (const std::string& sentence : sentences) {
        const std::vector<std::int32_t> ids = tokenizer->encode(sentence);
        CHECK(std::count(ids.begin(), ids.end(), kUnknown) == 0);
        CHECK(tokenizer->decode(ids) == sentence);
      }
    }
  }

  TEST_CASE("a model of SentencePiece's own trainer loads with our special ids") {
    const std::string file = trained_pieces(TokenizerKind::bpe, 45)->serialize();
    const TemporaryFile model(file.substr(file.find('\n') + 1));
    const auto tokenizer = load_sentencepiece_model(model.path());
    CHECK(tokenizer->serialize() == file);
    const TemporaryFile other("not a model");
    CHECK_THROWS_AS(load_sentencepiece_model(other.path()), DataError);
  }
}
