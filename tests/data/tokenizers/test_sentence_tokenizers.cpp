#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/tests/data/temporary_file.h>
#include <tapeformer/tests/data/tokenizers/pieces_of_text.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

namespace {

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

std::unique_ptr<Tokenizer> trained(const std::string& kind, Index size = 400) {
  return tokenizer_kind(sentence_tokenizers(), kind).train(text_in(kSentences), size);
}

constexpr const char* kExactKinds[] = {"word", "character", "bpe", "unigram"};  // keep every text as it is

}  // namespace

TEST_CASE("decoding returns every text that the vocabulary covers; so does a tokenizer from a file") {
  for (const char* kind : kExactKinds) {
    CAPTURE(kind);
    const auto tokenizer = trained(kind);
    CHECK(tokenizer->serialize() == trained(kind)->serialize());
    const TemporaryFile file(tokenizer->serialize());
    const auto loaded = load_tokenizer(sentence_tokenizers(), file.path());
    CHECK(loaded->vocabulary_size() == tokenizer->vocabulary_size());
    for (const std::string& sentence : kSentences) {
      CHECK(tokenizer->decode(tokenizer->encode(sentence)) == sentence);
      CHECK(loaded->encode(sentence) == tokenizer->encode(sentence));
    }
    CHECK(tokenizer->encode("").empty());
    CHECK(tokenizer->decode({}).empty());
    CHECK_THROWS_AS(tokenizer->encode("a\xc3"), DataError);
  }
}

TEST_CASE("special pieces have the same ids in every kind; decoding stops at the end and skips the others") {
  for (const char* kind : kExactKinds) {
    const auto tokenizer = trained(kind);
    CAPTURE(kind);
    CHECK(tokenizer->piece(kPadding) == "<pad>");
    CHECK(tokenizer->piece(kUnknown) == "<unk>");
    CHECK(tokenizer->piece(kBegin) == "<begin>");
    CHECK(tokenizer->piece(kEnd) == "<end>");
    Ids ids = {kBegin, kPadding};
    for (const std::int32_t id : tokenizer->encode("un espace")) {
      CHECK(id >= kSpecialTokens);
      ids.push_back(id);
    }
    ids.insert(ids.end(), {kEnd, kUnknown, ids[2]});
    CHECK(tokenizer->decode(ids) == "un espace");
  }
}

TEST_CASE("a damaged or foreign file is refused with what is wrong") {
  const auto error_of = [](const std::string& content) {
    return message_of<DataError>([&] { parse_tokenizer(sentence_tokenizers(), content, "t"); });
  };
  CHECK(error_of(write_tokenizer_file("sentencepiece", "junk")).find("t: is not a SentencePiece model") == 0);
  CHECK(error_of(write_tokenizer_file("word", "{\"a\":1}")).find("t: is not a list of pieces") == 0);
  CHECK(error_of(write_tokenizer_file("word", R"(["a","a"])")) == "t: has the piece \"a\" twice");
  CHECK(error_of(write_tokenizer_file("word", std::string("[\"a\"]\0", 6))) ==
        "t: is not a list of pieces: it is not JSON: it has a NUL at byte 6");
  CHECK(error_of(write_tokenizer_file("syllable", "[]")) ==
        "t: holds a tokenizer of kind syllable; one of kind word, space, character, sentencepiece, "
        "marian or transformers is needed here");
  CHECK_THROWS_AS(trained("word")->decode({5000}), DataError);
}

TEST_CASE("training without text, on other bytes, or with an impossible size, is refused") {
  for (const char* kind : {"word", "space", "character", "bpe", "unigram", "marian"}) {
    CAPTURE(kind);
    const std::string refused = message_of<DataError>([&] {
      tokenizer_kind(sentence_tokenizers(), kind).train(text_in({"the cat", "a\xc3"}), 400);
    });
    CHECK(refused.find("must be UTF-8; got something else at byte 1") != std::string::npos);
  }
  for (const char* kind : kExactKinds) {
    CHECK_THROWS_AS(tokenizer_kind(sentence_tokenizers(), kind).train(text_in({}), 400), DataError);
    CHECK_THROWS_AS(trained(kind, 4), DataError);
  }
  // fewer pieces than there are characters
  CHECK_THROWS_AS(trained("bpe", 20), DataError);
}
