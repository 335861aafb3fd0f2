#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/json/tokenizer_json.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

using Json = nlohmann::json;

const Json& golden_json() {
  static const Json all = Json::parse(read_file(TAPEFORMER_SOURCE_DIR "/tests/golden/tokenizer_json.json"));
  return all;
}

Json file_of(const std::string& name) {
  for (const Json& one : golden_json().at("cases"))
    if (one.at("name") == name) return Json::parse(one.at("file").get<std::string>());
  FAIL("no case " << name);
  return {};
}

std::string refusal(const Json& file) {
  return message_of<DataError>([&] { parse_tokenizer_json(file.dump(), "t.json"); });
}

}  // namespace

TEST_CASE("the ids and the texts are those of the tokenizers package") {
  for (const Json& one : golden_json().at("cases")) {
    const auto name = one.at("name").get<std::string>();
    CAPTURE(name);
    const auto tokenizer = parse_tokenizer_json(one.at("file"), "t.json");
    const auto again = parse_tokenizer(text_tokenizers(), tokenizer->serialize(), "again");
    for (std::size_t i = 0; i < golden_json().at("texts").size(); ++i) {
      const auto text = golden_json().at("texts").at(i).get<std::string>();
      CAPTURE(text);
      const auto ids = one.at("ids").at(i).get<std::vector<std::int32_t>>();
      CHECK(tokenizer->encode(text) == ids);
      CHECK(again->encode(text) == ids);
      CHECK(tokenizer->decode(ids) == one.at("decoded").at(i).get<std::string>());
    }
  }
}

TEST_CASE("a template's tokens begin and end a document, and special ones decode to nothing") {
  const auto bert = parse_tokenizer_json(file_of("WordPiece, BERT's").dump(), "t.json");
  REQUIRE(bert->begin());
  REQUIRE(bert->end());
  CHECK(*bert->begin() == 1);
  CHECK(*bert->end() == 2);
  CHECK(bert->bytes_of(1).empty());
  const auto llama = parse_tokenizer_json(file_of("BPE with byte_fallback, Llama 2's").dump(), "t.json");
  CHECK(llama->begin() == std::optional<std::int32_t>(1));
  CHECK_FALSE(llama->end());
  const auto plain =
      parse_tokenizer_json(R"({"model": {"type": "BPE", "vocab": {"": 0, "a": 1}, "merges": []}})", "t.json");
  CHECK_FALSE(plain->begin());
  CHECK_FALSE(plain->end());
  CHECK(llama->bytes_of(3 + '\n') == "\n");
  CHECK(llama->safe_cut("a text\n") == 0);
  CHECK_THROWS_AS(llama->bytes_of(static_cast<std::int32_t>(llama->vocabulary_size())), DataError);
  CHECK_THROWS_AS(llama->encode("\xff"), DataError);
}

TEST_CASE("what is not supported or damaged is refused by name") {
  const Json sound = file_of("Unigram, T5's");
  const auto with = [&](const char* pointer, const Json& value) {
    Json file = sound;
    file[Json::json_pointer(pointer)] = value;
    return refusal(file);
  };
  CHECK(has(with("/normalizer", {{"type", "Nmt"}}),
            "t.json: has a normalizer of type Nmt, which is not supported"));
  CHECK(has(with("/pre_tokenizer", {{"type", "UnicodeScripts"}}), "a pre-tokenizer of type UnicodeScripts"));
  CHECK(has(with("/decoder", {{"type", "CTC"}}), "a decoder of type CTC"));
  CHECK(has(with("/post_processor", {{"type", "Other"}}), "a post-processor of type Other"));
  CHECK(has(with("/model/type", "WordLevel"), "a model of type WordLevel"));
  CHECK(has(with("/model/unk_id", 100'000), "an unk_id outside the vocabulary"));
  CHECK(has(with("/model/unk_id", Index{1} << 32),
            "is damaged: an id must be from 0 to 2147483647; got 4294967296"));
  CHECK(has(
      with("/pre_tokenizer", {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(a"}}}}),
      "the pattern (a, which is not a regular expression"));
  CHECK(has(with("/model/vocab", "none"), "is damaged"));
  CHECK(has(with("/added_tokens/-", {{"content", "far"}, {"id", 1 << 30}}), "has the id 1073741824 among "));
  CHECK(has(with("/added_tokens/0/content", "</s>"), "the added token \"</s>\" with another id"));
  CHECK(has(message_of<DataError>([] { parse_tokenizer_json("{", "t.json"); }), "t.json: is damaged"));
}
