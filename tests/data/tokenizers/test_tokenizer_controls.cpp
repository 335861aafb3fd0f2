#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/byte_tokenizer.h>
#include <tapeformer/data/tokenizers/sentencepiece_text.h>
#include <tapeformer/data/tokenizers/tokenizer_controls.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

namespace {

const TextSource kCats = [](const auto& reader) { reader("the cat sat on the mat, the cat\n"); };

/// "<|x|>" as id 300, printed, and "<|y|>" as 302, silent and with the white space after it.
nlohmann::json two_tokens() {
  return nlohmann::json::array({{{"id", 300}, {"content", "<|x|>"}},
                                {{"id", 302}, {"content", "<|y|>"}, {"special", true}, {"rstrip", true}}});
}

std::unique_ptr<Tokenizer> with_two(std::unique_ptr<Tokenizer> plain, bool restarts) {
  TokenizerControls controls = TokenizerControls::of(*plain);
  controls.added = two_tokens();
  controls.restarts_after_added = restarts;
  return with_controls(std::move(plain), controls, "it");
}

Ids joined(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

TEST_CASE("added tokens are found in every text, and decode to their text or to nothing") {
  const auto plain = train_byte_pair_tokenizer(kCats, 262);
  const auto tokenizer = with_two(train_byte_pair_tokenizer(kCats, 262), true);
  CHECK(tokenizer->vocabulary_size() == 303);
  CHECK(tokenizer->encode("the cat") == plain->encode("the cat"));
  const Ids ids = tokenizer->encode("the<|x|> cat<|y|>  \xff<|x");
  CHECK(ids == joined({plain->encode("the"), {300}, plain->encode(" cat"), {302}, plain->encode("\xff<|x")}));
  CHECK(tokenizer->decode(ids) == "the<|x|> cat\xff<|x");
  CHECK(tokenizer->bytes_of(300) == "<|x|>");
  CHECK(tokenizer->bytes_of(301).empty());
  CHECK(tokenizer->bytes_of(302).empty());
  CHECK_THROWS_AS(tokenizer->bytes_of(303), DataError);
  CHECK(tokenizer->find("<|y|>") == 302);
  CHECK(tokenizer->find("<|endoftext|>") == plain->end());
  CHECK(tokenizer->kind() == std::string("bpe"));
  CHECK(tokenizer->safe_cut("the cat the cat") == 0);
  CHECK(byte_pair_files(*tokenizer).merges == byte_pair_files(*plain).merges);
  CHECK(added_tokens(*tokenizer).size() == 2);
  CHECK(added_tokens(*plain).empty());
}

TEST_CASE("an added token that the tokenizer has as a piece decodes as that piece") {
  auto plain = train_sentencepiece_tokenizer(kCats, 280);
  const std::int32_t id = plain->find("\u2581").value();
  TokenizerControls controls = TokenizerControls::of(*plain);
  controls.added.push_back({{"id", id}, {"content", "\u2581"}, {"special", false}});
  const auto tokenizer = with_controls(std::move(plain), controls, "it");
  CHECK(tokenizer->bytes_of(id) == " ");
  CHECK(tokenizer->decode({id, id}) == "  ");
}

TEST_CASE("text after an added token starts again or continues") {
  const auto plain = train_sentencepiece_tokenizer(kCats, 280);
  for (const bool restarts : {false, true}) {
    const auto tokenizer = with_two(train_sentencepiece_tokenizer(kCats, 280), restarts);
    CHECK(restarts_after_added(*tokenizer) == restarts);
    Ids rest;
    plain->encode_rest("cat", rest);
    const Ids behind = restarts ? plain->encode("cat") : rest;
    REQUIRE(plain->encode("cat") != rest);
    CHECK(tokenizer->encode("the<|x|>cat") == joined({plain->encode("the"), {300}, behind}));
    CHECK(tokenizer->encode("<|x|>cat") == joined({{300}, behind}));
    for (const char* text : {"the<|x|>cat", "<|x|> cat", "the<|x|><|x|> \n<|x|>"})
      CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  }
}

TEST_CASE("begin and ends are those given; an end outside the vocabulary ends no document") {
  const auto make = [](std::optional<std::int32_t> begin, const Ids& ends) {
    auto plain = train_sentencepiece_tokenizer(kCats, 280);
    TokenizerControls controls = TokenizerControls::of(*plain);
    controls.begin = begin;
    controls.ends = ends;
    return with_controls(std::move(plain), controls, "it");
  };
  CHECK(make(1, {2})->serialize() == train_sentencepiece_tokenizer(kCats, 280)->serialize());
  CHECK_FALSE(make({}, {2})->begin());
  CHECK(make(5, {2})->begin() == 5);
  CHECK(make(1, {9, 2})->ends() == Ids{9, 2});
  CHECK(make(1, {9, 2})->end() == 9);
  CHECK(make(1, {900, 7})->end() == 7);
  CHECK(make(1, {900})->ends() == Ids{900, 2});
  CHECK(make(1, {900})->end() == 2);
  CHECK(make(1, {-1})->end() == 2);
  CHECK_THROWS_AS(make(900, {2}), DataError);
  CHECK(make({}, {9})->safe_cut("the\ncat") == 4);
  CHECK(make_byte_tokenizer()->ends().empty());
}

TEST_CASE("its file comes back, and a damaged one is refused") {
  auto plain = train_sentencepiece_tokenizer(kCats, 280);
  TokenizerControls controls;
  controls.ends = {9, 302};
  controls.added = two_tokens();
  const std::string of_plain = plain->serialize();
  const auto tokenizer = with_controls(std::move(plain), controls, "it");
  const auto again = parse_tokenizer(text_tokenizers(), tokenizer->serialize(), "again");
  CHECK(again->serialize() == tokenizer->serialize());
  CHECK(again->encode("a<|x|>cat") == tokenizer->encode("a<|x|>cat"));
  CHECK(again->ends() == Ids{9, 302});
  CHECK_FALSE(again->begin());
  const auto message = [](const std::string& payload) {
    return message_of<DataError>([&] { controlled_text().read(payload, "t"); });
  };
  const std::string sound =
      R"({"begin": null, "begin_name": "", "restarts_after_added": true, "ends": [], "added": )";
  CHECK(message(sound + "[]}\n" + of_plain) == "nothing was thrown");
  const std::string older = write_tokenizer_file(
      "controls", R"({"added":[],"begin":5,"begin_name":"","begins_anew":false,"ends":[2]})"
                  "\n" +
                      of_plain);
  CHECK(parse_tokenizer(text_tokenizers(), older, "t")->serialize() == older);
  CHECK(message(sound + "[3]}\n" + of_plain).find("t: is damaged") == 0);
  CHECK(message(sound + R"([{"id": -1, "content": "a"}]})" + "\n" + of_plain) ==
        "t: is damaged: an id must be from 0 to 2147483647; got -1");
  CHECK(message(sound + R"([{"id": 2, "content": "</s>"}]})" + "\n" + of_plain) == "nothing was thrown");
  CHECK(message(sound + R"([{"id": 2, "content": "a"}]})" + "\n" + of_plain) ==
        "t: has the added token \"a\" with the id 2 of another token");
  CHECK(message(sound + R"([{"id": 999999999, "content": "a"}]})" + "\n" + of_plain) ==
        "t: has the added token \"a\" with the id 999999999, far from the others");
  CHECK(message("{}\n" + of_plain).find("t: is damaged") == 0);
  CHECK(message("{\n" + of_plain).find("t: is damaged") == 0);
  CHECK(message("").find("t: is not a tokenizer file") == 0);
  CHECK(message("{}\n" + tokenizer->serialize()) == "t: is damaged: it has controls twice");
}
