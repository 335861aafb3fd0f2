#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/numbered_pieces.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

TEST_CASE("pieces have the ids of a vocabulary, and names of control tokens are tokens everywhere") {
  const std::string model = train_sentencepiece({{"vocab_size", "30"}}, {"the cat", "a cat the cat"});
  const SentencePieceModel own(model, "it");
  NumberedPieces::Vocabulary words{{"<pad>", "", "</s>", "<unk>", "<x>"}, 3, 2, 0, {0, 2, 3, 4}};
  for (const std::string& piece : own.pieces("the cat")) words.pieces.push_back(piece);
  const NumberedPieces pieces(words, model, "it");
  const std::vector<std::int32_t> cat = pieces.encode("the cat");
  CHECK(cat.front() == 5);
  CHECK(pieces.encode("Z").back() == 3);
  CHECK_THROWS_AS(pieces.encode("a\xc3"), DataError);
  std::vector<std::int32_t> ids = pieces.encode("<x>the cat");
  CHECK(ids.front() == 4);
  CHECK(pieces.decode(ids) == "the cat");
  ids.insert(ids.end(), {2, 5});
  CHECK(pieces.decode(ids) == "the cat");
  CHECK(pieces.find("<x>") == 4);
  CHECK_FALSE(pieces.find("<y>"));
  CHECK_FALSE(pieces.find(""));
}

TEST_CASE("a file of ids is an object of pieces and ids") {
  CHECK(pieces_by_id({{"b", 2}, {"a", 0}}, "it") == std::vector<std::string>{"a", "", "b"});
  for (const int id : {-1, 70000})
    CHECK(message_of<DataError>([&] {
            pieces_by_id({{"a", id}}, "it");
          }) == "it: is not an object of pieces and ids; got a: " + std::to_string(id));
}
