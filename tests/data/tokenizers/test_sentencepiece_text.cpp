#include <doctest/doctest.h>
#include <sentencepiece_processor.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>
#include <tapeformer/data/tokenizers/sentencepiece_model.h>
#include <tapeformer/data/tokenizers/sentencepiece_text.h>
#include <tapeformer/tests/data/temporary_file.h>
#include <tapeformer/tests/data/tokenizers/pieces_of_text.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

namespace {

const std::string kStory =
    "Once upon a time, there was a little dog named Max.\nMax liked to play in the park in 2024, 2025.\n\n"
    "\tThe little dog was happy.  The park was big, and the time was long.\n";

const std::vector<std::string> kAwkward = {"",
                                           " ",
                                           "  two  spaces ",
                                           "\n",
                                           "\na\n\nb\r\n\t",
                                           "no\u00a0break\u202fspace",
                                           "漢字 😀 \u0301",
                                           "the little dog",
                                           " the",
                                           "<s>",
                                           "</s> <unk> <0x0A>",
                                           std::string("a\0b", 3),
                                           "0123"};

const Tokenizer& trained() {
  static const auto tokenizer = train_sentencepiece_tokenizer(in_pieces(kStory, 1000), 320);
  return *tokenizer;
}

Ids library_ids(const Tokenizer& tokenizer, const std::string& text) {
  sentencepiece::SentencePieceProcessor library;
  REQUIRE(library.LoadFromSerializedProto(sentencepiece_model(tokenizer)).ok());
  std::vector<int> ids;
  REQUIRE(library.Encode(text, &ids).ok());
  return {ids.begin(), ids.end()};
}

/// Words, white space and characters of all lengths.
std::string random_text(std::uint64_t seed, std::size_t most) {
  const std::vector<std::string> words = {"the", "time", "little", " ", "  ", "\n", "\n\n", "\r\n",
                                          "\t",  "é",    "漢",     "😀", "t",  "h",  "e",    "2025"};
  std::string text;
  for (std::uint64_t i = 0; i < mix_bits(test_seed(seed)) % (most + 1); ++i) {
    text += words[static_cast<std::size_t>(bounded(mix_bits(test_seed(seed), i), words.size()))];
  }
  return text;
}

/// The ids of a text given in pieces of random sizes.
Ids in_parts(const Tokenizer& tokenizer, std::string_view text, std::uint64_t seed) {
  const std::size_t longest = text.size() / 4 + 1;
  return ids_of_pieces(tokenizer, text,
                       [&](std::size_t i) { return 1 + mix_bits(test_seed(seed), i) % longest; });
}

}  // namespace

TEST_CASE("every text comes back, with rare characters as bytes") {
  for (const std::string& text : kAwkward) {
    CAPTURE(text);
    CHECK(trained().encode(text) == library_ids(trained(), text));
    CHECK(trained().decode(trained().encode(text)) == text);
  }
  Ids more = {7};
  trained().encode("the", more);
  CHECK(more.size() > 1);
  CHECK(more[0] == 7);
  CHECK(trained().decode(trained().encode(kStory)) == kStory);
  CHECK(trained().encode("the little dog").size() < 9);  // pieces, not characters
}

TEST_CASE("ids are as Llama's: unknown, begin, end, then the bytes") {
  CHECK(trained().vocabulary_size() == 320);
  CHECK(trained().begin() == 1);
  CHECK(trained().end() == 2);
  CHECK(trained().bytes_of(1).empty());
  CHECK(trained().bytes_of(2).empty());
  CHECK(trained().bytes_of(0) == " \u2047 ");
  CHECK(trained().decode({0, 0}) == " \u2047  \u2047 ");
  for (std::int32_t byte = 0; byte < 256; ++byte) {
    REQUIRE(trained().bytes_of(3 + byte) == std::string(1, static_cast<char>(byte)));
  }
  const Ids ids = trained().encode("\n");
  CHECK(ids.back() == 3 + '\n');
  CHECK(trained().bytes_of(ids.front()) == " ");  // before the first word
  CHECK_THROWS_AS(trained().decode({-1}), DataError);
}

TEST_CASE("decoding removes exactly one space before the first word") {
  Ids with_begin = trained().encode("the dog");
  CHECK(trained().bytes_of(with_begin[0])[0] == ' ');
  with_begin.insert(with_begin.begin(), 1);
  with_begin.push_back(2);
  CHECK(trained().decode(with_begin) == "the dog");
  CHECK(trained().decode(trained().encode("  the")) == "  the");
}

TEST_CASE("a model that puts no space before the first word keeps those that are there") {
  const std::string model = train_sentencepiece({{"model_type", "unigram"},
                                                 {"vocab_size", "300"},
                                                 {"hard_vocab_limit", "false"},
                                                 {"byte_fallback", "true"},
                                                 {"bos_id", "-1"},
                                                 {"eos_id", "-1"},
                                                 {"add_dummy_prefix", "false"}},
                                                {kStory.substr(0, 51)});
  const TemporaryFile file(model);
  const auto tokenizer = load_sentencepiece_tokenizer(file.path());
  CHECK(tokenizer->decode(tokenizer->encode(" time")) == " time");
  CHECK(tokenizer->decode(tokenizer->encode("time")) == "time");
  CHECK_FALSE(tokenizer->begin());
  CHECK_FALSE(tokenizer->end());
  CHECK(sentencepiece_model(*tokenizer) == model);
}

TEST_CASE("whole or in parts, a text has the ids that SentencePiece gives it") {
  const auto with = [](std::unordered_map<std::string, std::string> options) {
    options.insert({{"model_type", "bpe"}, {"vocab_size", "320"}, {"byte_fallback", "true"}});
    options.insert({"hard_vocab_limit", "false"});
    return text_sentencepiece().read(train_sentencepiece(std::move(options), {kStory.substr(0, 51)}), "m");
  };
  for (const auto& tokenizer :
       {with({}), with({{"model_type", "unigram"}, {"vocab_size", "300"}}),
        with({{"add_dummy_prefix", "false"}}), with({{"user_defined_symbols", "\n"}})}) {
    for (std::uint64_t round = 0; round < 200; ++round) {
      const std::string text = random_text(round, 40);
      CAPTURE(text);
      const Ids whole = tokenizer->encode(text);
      CHECK(whole == library_ids(*tokenizer, text));
      CHECK(in_parts(*tokenizer, text, round) == whole);
      CHECK(tokenizer->decode(whole) == text);
    }
    CHECK(tokenizer->safe_cut("ab\nc\nde") == 5);
    CHECK(tokenizer->safe_cut("ab") == 0);
    CHECK(tokenizer->safe_cut("\n") == 1);
  }
}

TEST_CASE("a line longer than 65,536 bytes is cut between characters, and comes back") {
  std::string line;
  while (line.size() < 65'534) line += "the dog ";
  line.resize(65'534);
  CHECK(trained().safe_cut("\n" + line) == 1);
  for (const std::string character : {"a", "é", "漢", "😀"}) {
    const std::string longer = line + character + character;
    CHECK(trained().safe_cut(longer) == (character.size() < 3 ? 65'536 : 65'534));
    CHECK(trained().safe_cut(longer.substr(0, 65'535)) == 0);
    const std::string mixed = longer + random_text(1, 20) + longer + longer + "\n" + line;
    const Ids whole = trained().encode(mixed);
    CHECK((in_parts(trained(), mixed, 1) == whole));
    CHECK((trained().decode(whole) == mixed));
  }
}

TEST_CASE("a model that changes white space or has longer pieces with line ends encodes texts whole") {
  const std::unordered_map<std::string, std::string> bpe = {
      {"model_type", "bpe"}, {"vocab_size", "320"}, {"hard_vocab_limit", "false"}, {"byte_fallback", "true"}};
  const std::vector<std::pair<std::string, std::string>> options = {{"normalization_rule_name", "nmt_nfkc"},
                                                                    {"remove_extra_whitespaces", "true"},
                                                                    {"byte_fallback", "false"},
                                                                    {"treat_whitespace_as_suffix", "true"},
                                                                    {"user_defined_symbols", "\n\n"}};
  for (const auto& option : options) {
    CAPTURE(option.first);
    auto changed = bpe;
    changed[option.first] = option.second;
    const auto tokenizer =
        text_sentencepiece().read(train_sentencepiece(changed, {kStory.substr(0, 51)}), "m");
    const std::string text = "the\n\n\ndog\n the  dog \n";
    CHECK(tokenizer->safe_cut(text) == 0);
    CHECK(tokenizer->encode(text) == library_ids(*tokenizer, text));
  }
}

TEST_CASE("what follows a prefix keeps its line end if the model has longer pieces with line ends") {
  const std::string model = train_sentencepiece({{"model_type", "bpe"},
                                                 {"vocab_size", "320"},
                                                 {"byte_fallback", "true"},
                                                 {"add_dummy_prefix", "false"},
                                                 {"user_defined_symbols", "\n\n"}},
                                                {kStory.substr(0, 51)});
  const auto tokenizer = text_sentencepiece().read(model, "m");
  for (const char* const text : {"\n", "\nthe dog", "\n\n\nthe", "the\n\n dog"}) {
    CAPTURE(text);
    Ids rest;
    tokenizer->encode_rest(text, rest);
    CHECK(rest == tokenizer->encode(text));
  }
}

TEST_CASE("from a text that is too long to learn from, evenly spread lines are taken") {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "line " + std::to_string(1000 + i) + "\n\n";
  const std::size_t each = 9 + sizeof(std::string);
  const auto lines = [&](std::size_t limit) { return sentencepiece_sentences(in_pieces(text, 100), limit); };
  CHECK(lines(1000 * each).size() == 1000);
  CHECK(lines(1000 * each - 1).size() == 500);
  CHECK(lines(500 * each).size() == 500);
  const std::vector<std::string> some = lines(100 * each);
  REQUIRE(some.size() == 63);
  for (std::size_t i = 0; i < some.size(); ++i) CHECK(some[i] == "line " + std::to_string(1000 + 16 * i));
  CHECK(lines(1).size() == 1);
}

TEST_CASE("pieces of the training text may end anywhere between characters, and lines may be long") {
  const std::string model = sentencepiece_model(trained());
  CHECK(sentencepiece_model(*train_sentencepiece_tokenizer(in_pieces(kStory, 7), 320)) == model);
  std::string crlf;
  for (const char c : kStory) crlf += c == '\n' ? "\r\n" : std::string(1, c);
  CHECK(sentencepiece_model(*train_sentencepiece_tokenizer(in_pieces(crlf, 7), 320)) == model);
  std::string line;
  for (int i = 0; i < 300; ++i) line += "the unusual word xylophone ";
  const auto tokenizer = train_sentencepiece_tokenizer(in_pieces(line, 100), 290);
  CHECK(tokenizer->encode("xylophone").size() < 9);  // a longer line than the trainer takes is not left out
}

TEST_CASE("text that is not UTF-8, no text, and other tokenizers are refused") {
  CHECK(message_of<DataError>([] { trained().encode("ab\xff"); }) ==
        "[tokenizer] the text of a SentencePiece tokenizer must be UTF-8; got something else at byte 2");
  CHECK_THROWS_AS(train_sentencepiece_tokenizer(in_pieces("a\x80", 2), 300), DataError);
  CHECK_THROWS_AS(train_sentencepiece_tokenizer(in_pieces("", 1), 300), DataError);
  CHECK(message_of<DataError>([] {
          train_sentencepiece_tokenizer(in_pieces(kStory, 1), 200);
        }).find("[tokenizer] SentencePiece cannot learn 200 pieces from 3 sentences") == 0);
  CHECK(message_of<DataError>([] { sentencepiece_model(*make_byte_tokenizer()); }) ==
        "[tokenizer] only a sentencepiece tokenizer has a model; got kind byte");
}
