#include <tapeformer/autograd/config/json.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>

#include <sstream>

using namespace tapeformer;

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kText = "the cat sat on the mat; the dög sat.\n  the end";

std::unique_ptr<Tokenizer> learnt() {
  return train_byte_pair_tokenizer([](const auto& reader) { reader(kText); }, 270);
}

/// A tokenizer.json as transformers writes it for GPT-2.
Json gpt2_json(bool pairs) {
  const BytePairFiles files = byte_pair_files(*learnt());
  Json vocabulary = parse_json(files.vocabulary), merges = Json::array();
  std::istringstream lines(files.merges);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t space = line.find(' ');
    if (pairs) {
      merges.push_back({line.substr(0, space), line.substr(space + 1)});
    } else {
      merges.push_back(line);
    }
  }
  const Json end = vocabulary.at("<|endoftext|>");
  vocabulary.erase("<|endoftext|>");
  return {{"version", "1.0"},
          {"added_tokens", {{{"id", end}, {"content", "<|endoftext|>"}, {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor", {{"type", "ByteLevel"}, {"trim_offsets", false}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

std::string refusal(const TemporaryFolder& folder, const Json& json) {
  write_bytes(folder.file("tokenizer.json"), json.dump());
  return message_of<DataError>([&] { find_tokenizer(folder.file("")); });
}

}  // namespace

TEST_CASE("a tokenizer.json of GPT-2's kind gives the ids of its two files, merges as lines or as pairs") {
  for (const bool pairs : {false, true}) {
    const TemporaryFolder folder;
    write_bytes(folder.file("tokenizer.json"), gpt2_json(pairs).dump());
    const auto read = find_tokenizer(folder.file(""));
    const auto ours = learnt();
    CHECK(read->encode(kText) == ours->encode(kText));
    CHECK(read->encode(kText).size() < std::string(kText).size());
    CHECK(read->decode(read->encode(kText)) == kText);
    CHECK(read->vocabulary_size() == ours->vocabulary_size());
    CHECK(read->end() == ours->end());
  }
}

TEST_CASE_FIXTURE(InFolder, "a tokenizer.json of another kind is read, or refused by name") {
  const auto refused = [&](const char* pointer, const Json& value) {
    Json json = gpt2_json(false);
    json[Json::json_pointer(pointer)] = value;
    return refusal(folder, json);
  };
  const auto kind = [&](const char* pointer, const Json& value) {
    CHECK(refused(pointer, value) == "nothing was thrown");
    const auto tokenizer = find_tokenizer(folder.file("tokenizer.json"));
    const TemporaryFolder exported;
    CHECK(has(export_tokenizer(*tokenizer, exported.file("")), "tokenizer"));
    CHECK(find_tokenizer(exported.file(""))->encode(kText) == tokenizer->encode(kText));
    return std::string(tokenizer->kind());
  };
  CHECK(kind("/model/unk_token", nullptr) == "bpe");
  CHECK(kind("/normalizer", {{"type", "NFC"}}) == "tokenizer_json");
  CHECK(kind("/pre_tokenizer/add_prefix_space", true) == "tokenizer_json");
  CHECK(kind("/pre_tokenizer/use_regex", false) == "tokenizer_json");
  CHECK(kind("/model/ignore_merges", true) == "tokenizer_json");
  CHECK(has(refused("/model", {{"type", "BPE"}}), "tokenizer.json: is damaged"));
  const std::string sound = gpt2_json(false).dump();
  write_bytes(folder.file("tokenizer.json"), sound + '\0');
  CHECK(has(message_of<DataError>([&] { find_tokenizer(folder.file("tokenizer.json")); }),
            "tokenizer.json: is damaged: it is not JSON: it has a NUL at byte"));
  write_bytes(folder.file("tokenizer.json"), "{\"version\": \"1.0\", " + sound.substr(1));
  CHECK(has(message_of<DataError>([&] { find_tokenizer(folder.file("tokenizer.json")); }),
            "tokenizer.json: is damaged: it has \"version\" twice"));
}

TEST_CASE("next to two files, tokenizer_config.json may ask for nothing that they cannot do") {
  const TemporaryFolder folder;
  const BytePairFiles files = byte_pair_files(*learnt());
  write_bytes(folder.file("vocab.json"), files.vocabulary);
  write_bytes(folder.file("merges.txt"), files.merges);
  const auto read = [&](const char* config) {
    write_bytes(folder.file("tokenizer_config.json"), config);
    return message_of<Error>([&] { find_tokenizer(folder.file("")); });
  };
  CHECK(read("{}") == "nothing was thrown");
  CHECK(read(R"({"tokenizer_class": null, "add_prefix_space": null})") == "nothing was thrown");
  CHECK(read(R"({"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": false})") ==
        "nothing was thrown");
  CHECK(has(read(R"({"tokenizer_class": "RobertaTokenizer"})"), "a tokenizer_class of RobertaTokenizer"));
  CHECK(has(read(R"({"add_prefix_space": true})"), "has add_prefix_space"));
  for (const char* damaged :
       {R"({"tokenizer_class": ["GPT2Tokenizer"]})", R"({"add_prefix_space": 1})", "[]", "{"})
    CHECK(has(read(damaged), "tokenizer_config.json"));
}

TEST_CASE_FIXTURE(InFolder, "a folder without a tokenizer says what was looked for") {
  const std::string message = message_of<DataError>([&] { find_tokenizer(folder.file("")); });
  CHECK(has(message, "has no tokenizer"));
  CHECK(has(message, "--tokenizer-model"));
  CHECK_FALSE(has_tokenizer(folder.file("")));
  write_bytes(folder.file("tokenizer.json"), gpt2_json(false).dump());
  CHECK(has_tokenizer(folder.file("")));
}
