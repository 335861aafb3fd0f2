#include <doctest/doctest.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/translation_tokenizer_kinds.h>
#include <tapeformer/tests/data/temporary_file.h>
#include <tapeformer/tests/reference/support.h>

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

std::unique_ptr<TranslationTokenizer> trained(TokenizerKind kind, Index size = 400) {
  TokenizerConfig config;
  config.kind = kind;
  config.vocabulary_size = size;
  return train_translation_tokenizer(config, kSentences);
}

// Of the kinds that keep every text as it is.
constexpr TokenizerKind kKinds[] = {TokenizerKind::word, TokenizerKind::character, TokenizerKind::bpe,
                                    TokenizerKind::unigram};

}  // namespace

TEST_SUITE("data/tokenizers/translation_tokenizer") {
  TEST_CASE("a long text takes no more time a byte than a short one") {
    for (const char* unit : {"t", " ", "est ", "l'\u00e9t\u00e9", "s'", "''"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      for (const TokenizerKind kind : kKinds) {
        CAPTURE(name_of(kind));
        CAPTURE(unit);
        const auto tokenizer = trained(kind);
        CHECK_FALSE(tokenizer->decode(tokenizer->encode(text)).empty());
      }
    }
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

  TEST_CASE("training twice gives the same file, which loads to the same tokenizer") {
    for (const TokenizerKind kind : kKinds) {
      const auto tokenizer = trained(kind);
      CAPTURE(name_of(kind));
      CHECK(tokenizer->serialize() == trained(kind)->serialize());
      const TemporaryFile file("");
      write_atomically(file.path(), tokenizer->serialize());
      const auto loaded = load_translation_tokenizer(file.path());
      CHECK(loaded->vocabulary_size() == tokenizer->vocabulary_size());
      for (const std::string& sentence : kSentences)
        CHECK(loaded->encode(sentence) == tokenizer->encode(sentence));
    }
  }

  TEST_CASE("a damaged or foreign file is refused with what is wrong") {
    const auto error_of = [](const std::string& content) {
      return message_of<DataError>([&] { parse_translation_tokenizer(content, "t"); });
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
    CHECK(error_of(write_tokenizer_file("word", std::string("[\"a\"]\0", 6))) ==
          "t: is not a list of pieces: it is not JSON: it has a NUL byte, its byte 6");
    CHECK(error_of(write_tokenizer_file("syllable", "[]")) ==
          "[tokenizer] a kind is word, space, character, bpe or unigram; got \"syllable\"");
    CHECK(message_of<DataError>([] { load_translation_tokenizer("/nonexistent/t"); }) ==
          "/nonexistent/t: cannot be opened: No such file or directory");
    const auto tokenizer = trained(TokenizerKind::word);
    CHECK(message_of<DataError>([&] { tokenizer->decode({5000}); }).find("ids are in [0, vocabulary)") !=
          std::string::npos);
  }

  TEST_CASE("training without text, or with an impossible size, is refused") {
    for (const TokenizerKind kind : kKinds) {
      TokenizerConfig config;
      config.kind = kind;
      CHECK_THROWS_AS(train_translation_tokenizer(config, {}), DataError);
      config.vocabulary_size = 4;
      CHECK_THROWS_AS(train_translation_tokenizer(config, kSentences), DataError);
    }
    // fewer pieces than there are characters
    CHECK_THROWS_AS(trained(TokenizerKind::bpe, 20), DataError);
  }
}
