#include <doctest/doctest.h>
#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/data/tokenizers/transformers.h>
#include <tapeformer/tests/data/tokenizers/pieces_of_text.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/text.h>

#include <filesystem>

using namespace tapeformer;

namespace {

const std::string kFamilyFolders = TAPEFORMER_SOURCE_DIR "/tests/golden/translation_folders/";

const nlohmann::json& family_cases() {
  static const auto all = parse_json<nlohmann::json>(read_file(kFamilyFolders + "cases.json"));
  return all;
}

/// A folder with some files of another, and others.
struct ChangedFolder {
  ChangedFolder(const std::string& name, const std::map<std::string, std::string>& files) {
    for (const char* file : {"config.json", "generation_config.json", "tokenizer.json",
                             "sentencepiece.bpe.model", "vocab.json", "tokenizer_config.json"})
      if (std::filesystem::exists(kFamilyFolders + name + "/" + file))
        write_bytes(folder.file(file), read_file(kFamilyFolders + name + "/" + file));
    for (const auto& [file, content] : files) {
      write_bytes(folder.file(file), content);
      if (content.empty()) std::filesystem::remove(folder.file(file));
    }
  }
  auto load() const { return load_transformers_tokenizer(folder.file(".")); }
  std::string refusal(const Languages& languages = {}) const {
    return message_of<DataError>([&] {
      const auto words = load();
      frame_of(*words, *words, languages);
    });
  }

  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("ids with their frames, and texts, are those of transformers, also from our own file") {
  for (const std::string name : {"t5", "bart", "mbart", "mbart50", "m2m100", "nllb"}) {
    const auto read = load_transformers_tokenizer(kFamilyFolders + name);
    const auto words = parse_tokenizer(sentence_tokenizers(), read->serialize(), "it");
    CHECK(words->serialize() == read->serialize());
    const Languages chosen{"", name == "m2m100" ? "en" : ""};
    const SentenceFrame frame = frame_of(*words, *words, chosen);
    CHECK(frame_of(*read, *read, chosen).begin == frame.begin);
    std::size_t i = 0;
    for (const auto& one : family_cases().at(name).at("cases")) {
      const std::string text = family_cases().at("sentences").at(i++);
      INFO(name, ": ", text);
      CHECK(frame.source(words->encode(text)) == one[0].get<Ids>());
      CHECK(frame.target(words->encode(text)) == one[1].get<Ids>());
      CHECK(words->decode(one[1]) == one[2].get<std::string>());
    }
  }
}

// Where spaces are doubled, the library and its copy in tokenizer.json differ.
TEST_CASE("pieces of a model of SentencePiece have the ids of fairseq, and languages follow them") {
  const std::string pieces = read_file(kFamilyFolders + "m2m100/sentencepiece.bpe.model");
  const ChangedFolder folder(
      "m2m100", {{"vocab.json", ""},
                 {"special_tokens_map.json", R"({"additional_special_tokens":
                                          ["</s>", "fr_XX", {"content": "de_DE"}]})"},
                 {"added_tokens.json", R"({"<y>": 73})"},
                 {"tokenizer_config.json", R"({"tokenizer_class": "MBartTokenizer", "src_lang": "de_DE"})"}});
  const auto words = folder.load(), other = load_transformers_tokenizer(kFamilyFolders + "nllb");
  for (const std::string text : family_cases().at("sentences")) {
    INFO(text);
    const auto has = [&](const char* part) { return text.find(part) != text.npos; };
    if (!has("  ") && !has("▁")) CHECK(words->encode(text) == other->encode(text));
  }
  const SentenceFrame frame = frame_of(*words, *words, {"", "fr_XX"});
  const auto first = static_cast<std::int32_t>(words->vocabulary_size()) - 3;
  CHECK(first == 71);  // "</s>" keeps its own
  CHECK(frame.source({9}) == Ids{9, 2, first + 1});
  CHECK(frame.target({9}) == Ids{9, 2, first});
  CHECK(frame.begin == first);
  CHECK(words->encode("the fr_XX cat") == Ids{35, first, 21});
  CHECK(words->encode("the <y> cat") == Ids{35, 73, 21});
  CHECK(words->decode({first, 35, 21, 2}) == "the cat");
}

TEST_CASE("tokens before and after a sentence") {
  const auto framed = [](const ChangedFolder& folder, const Languages& languages = {}) {
    const auto words = folder.load();
    return frame_of(*words, *words, languages);
  };
  const SentenceFrame t5 = framed({"t5", {}}), bart = framed({"bart", {}});
  CHECK(t5.begin == 0);
  CHECK(t5.padding == 0);
  CHECK_FALSE(t5.begins_zero);
  CHECK(bart.begin == 2);
  CHECK(bart.padding == 1);
  CHECK(bart.target_before == Ids{0});
  CHECK(bart.forced == Ids{0});
  CHECK(t5.forced.empty());
  const SentenceFrame nllb = framed({"nllb", {}}, {"deu_Latn", "eng_Latn"});
  CHECK(nllb.source_before == Ids{74});
  CHECK(nllb.target_before == Ids{72});
  CHECK(nllb.forced == nllb.target_before);
  CHECK(nllb.begin == 2);
  const ChangedFolder legacy("nllb", {{"tokenizer_config.json", R"({"legacy_behaviour": true,
    "tokenizer_class": "NllbTokenizer", "src_lang": "fra_Latn"})"},
                                      {"generation_config.json", R"({"forced_bos_token_id": 74})"}});
  CHECK(framed(legacy).source({}) == Ids{2, 73});
  CHECK(framed(legacy).forced == Ids{74});
}

TEST_CASE("unknown or absent languages are refused, and the chosen ones are saved") {
  const ChangedFolder nllb("nllb", {{"tokenizer_config.json", R"({"tokenizer_class": "NllbTokenizer"})"}});
  CHECK(nllb.refusal() == "--source-language must be one of deu_Latn, eng_Latn, fra_Latn; got none");
  CHECK(nllb.refusal({"deu_Latn", "fr"}) ==
        "--target-language must be one of deu_Latn, eng_Latn, fra_Latn; got fr");
  CHECK(has(nllb.refusal({"<pad>", "fra_Latn"}), "got <pad>"));
  CHECK(has(ChangedFolder("t5", {}).refusal({"de", ""}), "this model has none"));
  const auto words = load_transformers_tokenizer(kFamilyFolders + "m2m100");
  const auto files = transformers_files_of(*words, {"__de__", "en"});
  const auto options = parse_json(files.at("tokenizer_config.json"));
  CHECK(options.at("src_lang") == "de");
  CHECK(options.at("tgt_lang") == "en");
  CHECK(parse_json(files.at("generation_config.json")).at("forced_bos_token_id") == 85);
  CHECK(files.at("vocab.json") == read_file(kFamilyFolders + "m2m100/vocab.json"));
  const auto own = tokenizer_kind(sentence_tokenizers(), "word").train(text_in({"the cat"}), 20);
  CHECK(transformers_files_of(*own, {}).empty());
}

TEST_CASE("folders and files that lack something are refused by name") {
  CHECK(has(ChangedFolder("t5", {{"generation_config.json", R"({"decoder_start_token_id": 4294967296})"}})
                .refusal(),
            "has a mistaken decoder_start_token_id: an id must be from 0"));
  CHECK(has(ChangedFolder("t5", {{"tokenizer.json", ""}}).refusal(), "has no tokenizer: none of"));
  for (const auto& [name, file, content] :
       {std::tuple("t5", "tokenizer.json", "{"),
        {"m2m100", "tokenizer_config.json", R"({"added_tokens_decoder": {"x": "<y>"}})"}})
    CHECK(has(ChangedFolder(name, {{file, content}}).refusal(), "/.: has a damaged tokenizer: "));
  CHECK(has(ChangedFolder("mbart", {{"config.json", R"({"model_type": 5})"}}).refusal(), "damaged"));
  CHECK(has(ChangedFolder("t5", {{"tokenizer_config.json", R"({"eos_token": "<end>"})"}}).refusal(),
            "has no token <end> among its control tokens, the eos_token"));
  for (const char* added : {R"({"50": "▁the"})", R"({"50": {}})"}) {
    const std::string config = std::string(R"({"added_tokens_decoder": )") + added + "}";
    CHECK(has(ChangedFolder("m2m100", {{"tokenizer_config.json", config}}).refusal(), " added token"));
  }
  const std::string file = load_transformers_tokenizer(kFamilyFolders + "t5")->serialize();
  const auto cut = [&](std::size_t bytes) {
    const TokenizerFile parts = read_tokenizer_file(file, "it");
    return write_tokenizer_file("transformers", parts.payload.substr(0, bytes));
  };
  for (const std::size_t bytes : {0, 5, 60, 300, 2000})
    CHECK_THROWS_AS(parse_tokenizer(sentence_tokenizers(), cut(bytes), "it"), DataError);
}
