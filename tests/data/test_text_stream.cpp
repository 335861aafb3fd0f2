#include <doctest/doctest.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/text_stream.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/tests/reference/sanitized.h>
#include <tapeformer/tests/reference/support.h>

#include <algorithm>
#include <stdexcept>

using namespace tapeformer;

namespace {

using Strings = std::vector<std::string>;

/// Token i adds pieces[i].
class Pieces : public Tokenizer {
 public:
  explicit Pieces(Strings pieces) : pieces_(std::move(pieces)) {}
  void encode(std::string_view, std::vector<std::int32_t>&) const override {
    throw std::logic_error("unused");
  }
  std::string bytes_of(std::int32_t id) const override { return pieces_.at(static_cast<std::size_t>(id)); }
  Index vocabulary_size() const override { return static_cast<Index>(pieces_.size()); }
  const char* kind() const override { return "pieces"; }
  std::string serialize() const override { return {}; }

 private:
  Strings pieces_;
};

/// The text shown after each piece and at the end.
Strings shown(const Strings& pieces, Strings stops = {}) {
  const Pieces tokenizer(pieces);
  TextStream stream(tokenizer, std::move(stops));
  Strings texts;
  for (std::size_t i = 0; i < pieces.size(); ++i) texts.push_back(stream.add(static_cast<std::int32_t>(i)));
  texts.push_back(stream.finish());
  return texts;
}

/// The final text of `bytes`: invalid bytes replaced, then cut before the first complete stop string.
std::string shown_at_once(std::string_view bytes, const Strings& stops) {
  std::string text;
  for (; !bytes.empty(); bytes.remove_prefix(next_utf8(bytes).length)) {
    const Utf8Step step = next_utf8(bytes);
    text += step.kind == Utf8Step::whole ? std::string(bytes.substr(0, step.length)) : "\ufffd";
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      const bool ends = text.size() >= stop.size() && text.substr(text.size() - stop.size()) == stop;
      if (ends) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, text.size() - longest);
  }
  return text;
}

std::string common_start(const std::string& a, const std::string& b) {
  std::size_t length = 0;
  while (length < a.size() && length < b.size() && a[length] == b[length]) ++length;
  while (find_invalid_utf8(a.substr(0, length)) != std::string::npos) --length;
  return a.substr(0, length);
}

}  // namespace

TEST_CASE("a character is shown when its last byte has come, and as U+FFFD if it does not") {
  CHECK(shown({"To", " be", "", ", é"}) == Strings{"To", " be", "", ", é", ""});
  CHECK(shown({"a\xf0", "\x9f", "\x98", "\x80!"}) == Strings{"a", "", "", "😀!", ""});
  CHECK(shown({"\xf0\x9f\x98", "("}) == Strings{"", "\ufffd(", ""});            // three bytes, one U+FFFD
  CHECK(shown({"\xed", "\xa0\x80"}) == Strings{"", "\ufffd\ufffd\ufffd", ""});  // a surrogate
  CHECK(shown({"\xe2\x82", "\xc3"}) == Strings{"", "\ufffd", "\ufffd"});
}

TEST_CASE("a stop string and what follows it are not shown, wherever the tokens end") {
  CHECK(shown({"a E", "N", "D", " b"}, {"END"}) == Strings{"a ", "", "", "", ""});
  const Pieces tokenizer({"x", "END", "y"});
  TextStream stream(tokenizer, {"END"});
  stream.add(0);
  CHECK_FALSE(stream.stopped());
  stream.add(1);
  CHECK(stream.stopped());
  CHECK(stream.add(2).empty());
  CHECK(stream.finish().empty());
  CHECK(stream.stopped());
}

TEST_CASE(
    "of several stop strings the one that is complete first counts, of two that end together the longer") {
  CHECK(shown({"abcd", "ef"}, {"abcdef", "cd"}) == Strings{"ab", "", ""});
  CHECK(shown({"xabc"}, {"bc", "abc"}) == Strings{"x", ""});
  CHECK(shown({"xaby"}, {"abz", "by"}) == Strings{"xa", ""});
}

TEST_CASE("a stop string that is empty or not UTF-8 is refused") {
  const Pieces tokenizer({});
  CHECK_THROWS_WITH_AS(TextStream(tokenizer, {"a", ""}),
                       "[text_stream] a stop string must be UTF-8 and not empty; got \"\"", DataError);
  CHECK_THROWS_AS(TextStream(tokenizer, {"a\xc3"}), DataError);
}

TEST_CASE("text is shown as soon as no continuation can take it back") {
  const Strings alphabet = {"a", "b", "\xc3", "\xa9", "\xe2", "\xff"};
  const std::vector<Strings> all_stops = {
      {}, {"ab"}, {"aab", "ba"}, {"é"}, {"bé", "aba"}, {"a\ufffd"}, {"abab", "b\ufffdb"}};
  Strings endings = {""};
  for (std::size_t i = 0; i < 1 + 6 + 36 + 216 && endings.size() < 1555; ++i) {
    for (const std::string& one : alphabet) endings.push_back(endings[i] + one);
  }
  for (std::uint64_t seed = 0; seed < fewer_if_sanitized(std::uint64_t{800}); ++seed) {
    const Strings& stops = all_stops[seed % all_stops.size()];
    Strings pieces;
    for (std::uint64_t i = 0; i < 1 + seed % 5; ++i) {
      pieces.push_back(alphabet[bounded(mix_bits(test_seed(seed), i), alphabet.size())]);
      if (mix_bits(test_seed(seed), i) % 3 == 0)
        pieces.back() += alphabet[mix_bits(test_seed(seed), 50 + i) % alphabet.size()];
    }
    CAPTURE(joined(pieces, ""));
    const Strings texts = shown(pieces, stops);
    REQUIRE(joined(texts, "") == shown_at_once(joined(pieces, ""), stops));
    std::string bytes, so_far;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      bytes += pieces[i], so_far += texts[i];
      std::string certain = shown_at_once(bytes, stops);
      for (const std::string& ending : endings)
        certain = common_start(certain, shown_at_once(bytes + ending, stops));
      REQUIRE(so_far == certain);
    }
  }
}
