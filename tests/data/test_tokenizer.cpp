#include "temporary_file.h"

#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizer_kinds.h>

#include <fstream>
#include <iterator>

using namespace tapeformer;

namespace {

using Ids = std::vector<std::int32_t>;

const std::vector<std::string> kSentences = {
    "L'homme n'est pas là : il dort.",
    "Qu'est-ce que c'est\u202f?",
    "Vraiment ! « Oui », dit-elle\u00a0; « d'accord »…",
    "Tom's dog isn't here, and I'm glad (really).",
    "Aujourd’hui, l’été commence — 3,14 est π.",
    " un espace devant,  deux dedans, un derrière ",
    "rock 'n' roll, the neighbors' car, ''",
    "😀 x y ",
};

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

std::unique_ptr<Tokenizer> trained(TokenizerKind kind, Index size = 400, bool byte_fallback = false) {
  TokenizerConfig config;
  config.kind = kind;
  config.vocabulary_size = size;
  config.byte_fallback = byte_fallback;
  return train_tokenizer(config, kSentences);
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

constexpr TokenizerKind kKinds[] = {TokenizerKind::word, TokenizerKind::character, TokenizerKind::bpe,
                                    TokenizerKind::unigram};

}  // namespace

TEST_SUITE("data/tokenizer") {
  using Words = std::vector<std::string>;

  TEST_CASE("a word takes the space before it, a mark stands alone") {
    CHECK(words_of(" Hello, big world!") == Words{" Hello", ",", " big", " world", "!"});
    CHECK(words_of(" Va !") == Words{" Va", " !"});
    CHECK(words_of(" Où\u202f? Là\u00a0!") == Words{" Où", "\u202f?", " Là", "\u00a0!"});
    CHECK(words_of(" avez-vous 3,14 €") == Words{" avez", "-", "vous", " 3", ",", "14", " €"});
    CHECK(words_of(" a  b ") == Words{" a", " ", " b", " "});
    CHECK(words_of("").empty());
  }

  TEST_CASE("an apostrophe goes with the shorter word, or the one behind it") {
    CHECK(words_of(" l'homme") == Words{" l'", "homme"});
    CHECK(words_of(" aujourd’hui") == Words{" aujourd", "’hui"});
    CHECK(words_of(" Tom's I'm isn't") == Words{" Tom", "'s", " I", "'m", " isn", "'t"});
    CHECK(words_of(" jusqu'à l'été") == Words{" jusqu", "'à", " l'", "été"});
    CHECK(words_of(" the neighbors' 'n' cars") == Words{" the", " neighbors", "'", " '", "n", "'", " cars"});
    CHECK(words_of(" qu'est-ce") == Words{" qu'", "est", "-", "ce"});
  }

  TEST_CASE("decoding returns every text that the vocabulary covers") {
    for (const TokenizerKind kind : kKinds) {
      const auto tokenizer = trained(kind);
      for (const std::string& sentence : kSentences) {
        CAPTURE(name_of(kind));
        CHECK(tokenizer->decode(tokenizer->encode(sentence)) == sentence);
      }
      CHECK(tokenizer->encode("").empty());
      CHECK(tokenizer->decode({}).empty());
    }
  }

  TEST_CASE("the special pieces have the same ids in every kind") {
    for (const TokenizerKind kind : kKinds) {
      const auto tokenizer = trained(kind);
      CAPTURE(name_of(kind));
      CHECK(tokenizer->piece(kPadding) == "<pad>");
      CHECK(tokenizer->piece(kUnknown) == "<unk>");
      CHECK(tokenizer->piece(kBegin) == "<begin>");
      CHECK(tokenizer->piece(kEnd) == "<end>");
      for (const std::int32_t id : tokenizer->encode("deux dedans")) CHECK(id >= kSpecialTokens);
    }
  }

  TEST_CASE("decoding stops at the end and skips padding and begin") {
    for (const TokenizerKind kind : kKinds) {
      const auto tokenizer = trained(kind);
      Ids ids = {kBegin, kPadding};
      for (const std::int32_t id : tokenizer->encode("un espace")) ids.push_back(id);
      ids.insert(ids.end(), {kEnd, kUnknown, ids[2]});
      CHECK(tokenizer->decode(ids) == "un espace");
    }
  }

  TEST_CASE("what the vocabulary lacks is unknown, or spelled in bytes") {
    CHECK(trained(TokenizerKind::word)->encode("un zèbre") ==
          Ids{trained(TokenizerKind::word)->encode("un")[0], kUnknown});
    CHECK(trained(TokenizerKind::word)->decode({kUnknown, kUnknown}) == "⁇ ⁇");
    CHECK(trained(TokenizerKind::character)->encode("é漢").back() == kUnknown);
    CHECK(trained(TokenizerKind::character)->decode({kUnknown}) == "⁇");
    for (const TokenizerKind kind : {TokenizerKind::bpe, TokenizerKind::unigram}) {
      CHECK(trained(kind)->encode("漢").back() == kUnknown);
      const auto spelling = trained(kind, 600, true);
      CHECK(spelling->encode("漢").size() >= 3);
      CHECK(spelling->decode(spelling->encode("un 漢字 \u202f!")) == "un 漢字 \u202f!");
    }
  }

  TEST_CASE("a vocabulary is capped, and keeps the frequent pieces") {
    TokenizerConfig config;
    config.kind = TokenizerKind::word;
    config.vocabulary_size = 6;
    const std::vector<std::string> sentences = {"b a b a c", "b d d"};
    const auto tokenizer = train_tokenizer(config, sentences);
    CHECK(tokenizer->vocabulary_size() == 6);
    CHECK(tokenizer->piece(4) == " b");
    CHECK(tokenizer->piece(5) == " a");
    config.vocabulary_size = 100;
    config.min_count = 2;
    CHECK(train_tokenizer(config, sentences)->vocabulary_size() == 4 + 3);
    for (const TokenizerKind kind : {TokenizerKind::bpe, TokenizerKind::unigram}) {
      const Index size = trained(kind, 90)->vocabulary_size();
      CHECK(size <= 90);
      CHECK(size > 80);
    }
  }

  TEST_CASE("training twice gives the same file, which loads to the same tokenizer") {
    for (const TokenizerKind kind : kKinds) {
      const auto tokenizer = trained(kind);
      CAPTURE(name_of(kind));
      CHECK(tokenizer->serialize() == trained(kind)->serialize());
      const TemporaryFile file("");
      tokenizer->save(file.path());
      CHECK(content_of(file.path()) == tokenizer->serialize());
      const auto loaded = load_tokenizer(file.path());
      CHECK(loaded->vocabulary_size() == tokenizer->vocabulary_size());
      for (const std::string& sentence : kSentences)
        CHECK(loaded->encode(sentence) == tokenizer->encode(sentence));
    }
  }

  TEST_CASE("a damaged or foreign file is refused with what is wrong") {
    const auto error_of = [](const std::string& content) {
      return message_of<DataError>([&] { parse_tokenizer(content, "t"); });
    };
    CHECK(error_of("{}") ==
          "t: is not a tokenizer file: it does not start with \"tapeformer-tokenizer-1 KIND\"");
    CHECK(error_of("") ==
          "t: is not a tokenizer file: it does not start with \"tapeformer-tokenizer-1 KIND\"");
    for (const TokenizerKind kind : kKinds) {
      const std::string whole = trained(kind)->serialize();
      CHECK(error_of(whole.substr(0, whole.size() - 1)).find("t: is damaged: its header promises") == 0);
      std::string flipped = whole;
      flipped[whole.size() / 2] ^= 1;
      CHECK(error_of(flipped) == "t: is damaged: its checksum does not match");
    }
    CHECK(error_of(write_tokenizer_file("sentencepiece", "junk")).find("t: is not a SentencePiece model") ==
          0);
    CHECK(error_of(write_tokenizer_file("word", "{\"a\":1}")).find("t: is not a list of pieces") == 0);
    CHECK(error_of(write_tokenizer_file("syllable", "[]")) ==
          "[tokenizer] a kind is word, character, bpe or unigram; got \"syllable\"");
    CHECK(message_of<DataError>([] { load_tokenizer("/nonexistent/t"); }) ==
          "/nonexistent/t: cannot be opened: No such file or directory");
    const auto tokenizer = trained(TokenizerKind::word);
    CHECK(message_of<DataError>([&] {
            tokenizer->save("/nonexistent/t");
          }).find("/nonexistent/t: cannot be") == 0);
    CHECK(message_of<DataError>([&] { tokenizer->decode({5000}); }).find("ids are in [0, vocabulary)") !=
          std::string::npos);
  }

  TEST_CASE("training without text, or with an impossible size, is refused") {
    for (const TokenizerKind kind : kKinds) {
      TokenizerConfig config;
      config.kind = kind;
      CHECK_THROWS_AS(train_tokenizer(config, {}), DataError);
      config.vocabulary_size = 4;
      CHECK_THROWS_AS(train_tokenizer(config, kSentences), DataError);
    }
    // fewer pieces than there are characters
    CHECK_THROWS_AS(trained(TokenizerKind::bpe, 20), DataError);
  }

  TEST_CASE("a model of SentencePiece's own trainer loads with our special ids") {
    const std::string file = trained(TokenizerKind::bpe)->serialize();
    const TemporaryFile model(file.substr(file.find('\n') + 1));
    const auto tokenizer = load_sentencepiece_model(model.path());
    CHECK(tokenizer->serialize() == file);
    const TemporaryFile other("not a model");
    CHECK_THROWS_AS(load_sentencepiece_model(other.path()), DataError);
  }
}
