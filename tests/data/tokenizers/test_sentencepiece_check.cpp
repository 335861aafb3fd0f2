#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/sentencepiece_check.h>
#include <tapeformer/data/tokenizers/sentencepiece_model.h>
#include <tapeformer/tests/data/temporary_file.h>
#include <tapeformer/tests/reference/support.h>

#include <algorithm>
#include <cstring>

using namespace tapeformer;

namespace {

constexpr char kNormal = 1, kUnknownPiece = 2, kUserDefined = 4;

std::string varint(std::size_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>((number & 0x7f) | 0x80);
  return bytes + static_cast<char>(number);
}

std::string field(int number, const std::string& content) {
  return varint(static_cast<std::size_t>(number) << 3 | 2) + varint(content.size()) + content;
}

std::string piece(const std::string& text, char type) {
  return field(1, field(1, text) + std::string{3 << 3, type});
}

/// The symbols a, aa, aaa, ... of a model.
std::string nested_symbols(std::size_t count) {
  std::string model = piece("<unk>", kUnknownPiece);
  for (std::size_t i = 1; i <= count; ++i) model += piece(std::string(i, 'a'), kUserDefined);
  return model;
}

std::string refusal(const std::string& model) {
  return message_of<DataError>([&] { check_sentencepiece(model, "m"); });
}

const std::vector<std::string>& sentences() {
  static const std::vector<std::string> kCheckedSentences(4, "A cat and a dog, A dog and a bat");
  return kCheckedSentences;
}

/// A model that normalises: A becomes a, and the euro sign a word.
std::string normalizing_model() {
  const TemporaryFile rules("41\t61\n20AC\t65 75 72 6F\n");
  return train_sentencepiece(
      {{"model_type", "bpe"}, {"vocab_size", "30"}, {"normalization_rule_tsv", rules.path()}}, sentences());
}

/// The position of the size of the trie in that model, before the trie.
std::size_t trie_of(const std::string& model) {
  for (std::size_t at = 0; at + 8 < model.size(); ++at) {
    std::uint32_t bytes;
    std::memcpy(&bytes, model.data() + at, sizeof bytes);
    if (bytes >= 1024 && bytes % 1024 == 0 && at + 4 + bytes < model.size()) return at;
  }
  FAIL("there is no trie");
  return 0;
}

}  // namespace

TEST_SUITE("data/tokenizers/sentencepiece_check") {
  TEST_CASE("models of the library's trainer pass") {
    CHECK(refusal(train_sentencepiece({{"model_type", "unigram"}, {"vocab_size", "20"}}, sentences())) ==
          "nothing was thrown");
    CHECK(refusal(normalizing_model()) == "nothing was thrown");
    const SentencePieceModel model(normalizing_model(), "m");
    CHECK(model.encode("A") == model.encode("a"));
    CHECK(model.decode(model.encode("a cat")) == "a cat");
  }

  TEST_CASE("pieces on which the library would recurse without end or abort are refused") {
    const std::string nul = "m: is not a SentencePiece model: a piece is too long or has a NUL byte";
    CHECK(refusal(piece(std::string(7999, 'a'), kNormal)) == "nothing was thrown");
    CHECK(refusal(piece(std::string(8000, 'a'), kNormal)) == nul);
    CHECK(refusal(piece(std::string("a\0b", 3), kNormal)) == nul);
    CHECK(refusal(field(1, field(1, std::string(1, '\0')) + field(1, "a"))) == nul);
  }

  TEST_CASE("of symbols that begin one another there are at most as many as the library has room for") {
    CHECK(refusal(nested_symbols(65)) ==
          "m: is not a SentencePiece model: too many of its symbols begin one another");
    CHECK(refusal(nested_symbols(64) + piece("ab", kUserDefined) + piece(std::string(65, 'a'), kNormal)) ==
          "nothing was thrown");
    const SentencePieceModel model(nested_symbols(64), "m");
    CHECK(model.encode(std::string(200, 'a')).size() >= 4);
  }

  TEST_CASE("what is cut short or no protocol buffer is refused") {
    const std::string damaged = "m: is not a SentencePiece model: it is damaged";
    CHECK(refusal("\x0a\x05"
                  "a") == damaged);
    CHECK(refusal("\x0b") == damaged);
    CHECK(refusal("\x0a") == damaged);
    CHECK(refusal(std::string(11, '\xff')) == damaged);
    CHECK(refusal("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01") == damaged);
    CHECK(refusal("") == "nothing was thrown");  // the library itself refuses it
  }

  TEST_CASE("a damaged trie is refused or does no harm") {
    const std::string model = normalizing_model(), text = "A cat \xe2\x82\xac and \xe2\x82 \xc3\xa9 dogs";
    const std::size_t trie = trie_of(model);
    int refused = 0;
    for (std::size_t at = trie; at < std::min(trie + 2000, model.size()); ++at) {
      for (const int bit : {0, 1, 2, 7}) {
        std::string changed = model;
        changed[at] = static_cast<char>(changed[at] ^ 1 << bit);
        try {
          SentencePieceModel(changed, "m").encode(text);
        } catch (const DataError&) {
          ++refused;
        }
      }
    }
    CHECK(refused > 0);
  }

  TEST_CASE("a trie that leads out of itself, round in a circle or to more rules than there is room for") {
    const auto with_trie = [](std::vector<std::uint32_t> units) {
      const auto bytes = static_cast<std::uint32_t>(units.size() * 4);
      std::string blob(reinterpret_cast<const char*>(&bytes), 4);
      blob.append(reinterpret_cast<const char*>(units.data()), bytes);
      return refusal(field(3, field(2, blob + "x")));
    };
    const std::string damaged = "m: is not a SentencePiece model: its rules of normalisation are damaged";
    std::vector<std::uint32_t> units(768, 1u << 31);  // leaves, which no byte leads to
    const std::size_t a = 256 + 'a';                  // where it leads from the first unit
    units[0] = 256 << 10;
    CHECK(with_trie(units) == "nothing was thrown");
    CHECK(with_trie({units.begin(), units.begin() + 511}) == damaged);
    units[0] = 768 << 10;
    CHECK(with_trie(units) == damaged);
    units[0] = 256 << 10;
    const auto leads_to = [&](std::size_t node) {
      return static_cast<std::uint32_t>('a' | (a ^ node) << 10);
    };
    units[a] = leads_to(512);
    CHECK(with_trie(units) == "nothing was thrown");
    units[a] = leads_to(768);
    CHECK(with_trie(units) == damaged);
    units[a] = leads_to(256);
    CHECK(with_trie(units) == damaged);
    units[a] = leads_to(512) | 1u << 8;  // has a value there
    units[512] = 1u << 31 | 1;
    CHECK(with_trie(units) == "nothing was thrown");
    units[512] = 1u << 31 | 2;  // behind the texts
    CHECK(with_trie(units) == damaged);
    for (const std::size_t count : {32, 33}) {  // a chain of 'b', each with a value
      std::vector<std::uint32_t> chain(256 * 40, 1u << 31);
      std::size_t node = 256;
      chain[0] = 256 << 10;
      for (std::size_t i = 1; i <= count; ++i) {
        const std::size_t child = node ^ 'b', next = node + 256;
        chain[child] = static_cast<std::uint32_t>('b' | 1u << 8 | (child ^ next) << 10);
        node = next;
      }
      CHECK(with_trie(chain) == (count == 32 ? "nothing was thrown" : damaged));
    }
  }
}
