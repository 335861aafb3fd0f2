#include <tapeformer/autograd/system/file.h>
#include <tapeformer/data/tokenizers/byte_pair.h>
#include <tapeformer/data/tokenizers/json/read_json.h>
#include <tapeformer/data/tokenizers/json/tokenizer_json.h>
#include <tapeformer/data/tokenizers/sentencepiece_text.h>
#include <tapeformer/data/tokenizers/tokenizer_controls.h>
#include <tapeformer/data/tokenizers/tokenizer_file.h>
#include <tapeformer/examples/language/folder_controls.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

namespace tapeformer {
namespace {

using SortedJson = nlohmann::json;  // finds a token faster
using nlohmann::ordered_json;
namespace fs = std::filesystem;

/// The type of a part of tokenizer.json; empty if there is no such part.
std::string type_of(const SortedJson& json, const char* part) {
  if (!json.contains(part) || json.at(part).is_null()) return {};
  return json.at(part).value("type", "no type");
}

/// True for GPT-2's kind, which has its own tokenizer here: byte-level BPE with its pattern, and nothing
/// else.
bool is_gpt2(const SortedJson& json) {
  const SortedJson& model = json.at("model");
  const SortedJson splitter = json.value("pre_tokenizer", SortedJson());
  const std::string after = type_of(json, "post_processor");
  bool is_plain = model.value("type", "BPE") == "BPE" && type_of(json, "normalizer").empty() &&
                  splitter.is_object() && splitter.value("type", "") == "ByteLevel" &&
                  !splitter.value("add_prefix_space", true) && splitter.value("use_regex", true) &&
                  (after.empty() || after == "ByteLevel");
  for (const char* flag : {"byte_fallback", "ignore_merges"})
    is_plain = is_plain && model.value(flag, SortedJson(false)) != true;
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    is_plain = is_plain && !(model.contains(affix) && model.at(affix).is_string() && model.at(affix) != "");
  return is_plain;
}

std::string merge_line(const SortedJson& merge) {
  if (merge.is_string()) return merge.get<std::string>() + "\n";
  return merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>() + "\n";
}

/// Adds the tokens of `more` that `list` lacks.
void add_missing(SortedJson& list, const SortedJson& more) {
  for (const SortedJson& token : more) {
    const auto is_same = [&](const SortedJson& known) { return known.at("content") == token.at("content"); };
    if (std::none_of(list.begin(), list.end(), is_same)) list.push_back(token);
  }
}

/// `more` are tokens that other files add.
PlainTokenizer plain_tokenizer_json(const std::string& path, const SortedJson& more = SortedJson::array()) {
  return reading_json(path, "is damaged", [&]() -> PlainTokenizer {
    SortedJson json = parse_json<SortedJson>(read_file(path), "it");
    SortedJson& added = json["added_tokens"];
    if (added.is_null()) added = SortedJson::array();
    const std::size_t count = added.size();
    add_missing(added, more);
    if (!is_gpt2(json))
      return {added.size() > count ? parse_tokenizer_json(json.dump(), path)
                                   : parse_tokenizer_json(read_file(path), path)};
    SortedJson vocabulary = json.at("model").at("vocab");
    for (const SortedJson& token : added) vocabulary[token.at("content").get<std::string>()] = token.at("id");
    std::string merges;
    for (const SortedJson& merge : json.at("model").at("merges")) merges += merge_line(merge);
    return {std::make_unique<BytePairTokenizer>(parse_byte_pair_files(vocabulary.dump(), path, merges, path)),
            added};
  });
}

/// Refuses a tokenizer_config.json that does not describe GPT-2's pattern, which is not in vocab.json and
/// merges.txt.
void check_tokenizer_config(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  if (!fs::exists(path)) return;
  JsonFields fields(parse_json(read_file<CheckpointError>(path), path), path + ": ");
  const std::string type = fields.text("tokenizer_class", "GPT2Tokenizer");
  if (type.find("GPT2") == std::string::npos)
    throw DataError(
        path, 0,
        "has a tokenizer_class of " + type +
            ", which is not supported next to vocab.json and merges.txt; try the model's tokenizer.json");
}

/// The tokenizer of a folder; nullptr if there is none.
std::shared_ptr<const Tokenizer> tokenizer_in_folder(const std::string& folder) {
  const auto file = [&](const char* name) { return folder + "/" + name; };
  const auto has = [&](const char* name) { return fs::exists(file(name)); };
  if (has(kTokenizerFile)) return load_tokenizer(text_tokenizers(), file(kTokenizerFile));
  const auto controlled = [&](PlainTokenizer plain) {
    return with_folder_controls(std::move(plain), folder);
  };
  if (has("tokenizer.json"))
    return controlled(plain_tokenizer_json(file("tokenizer.json"), tokens_added_in(folder)));
  if (auto found = find_sentencepiece(folder)) return found;
  for (const auto& [vocabulary, merges] :
       {std::pair("vocab.json", "merges.txt"), std::pair("encoder.json", "vocab.bpe")}) {
    if (!has(vocabulary) || !has(merges)) continue;
    check_tokenizer_config(folder);
    return controlled({load_byte_pair_tokenizer(file(vocabulary), file(merges)), tokens_added_in(folder)});
  }
  return nullptr;
}

/// A tokenizer.json for transformers: with pieces but no merges, BPE yields the code points.
ordered_json character_json(const Tokenizer& tokenizer) {
  ordered_json json = parse_json(R"({
    "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
              "vocab": {}, "merges": []}})");
  auto& vocabulary = json["model"]["vocab"].get_ref<ordered_json::object_t&>();
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
    vocabulary.emplace_back(tokenizer.bytes_of(id), id);  // [] would search all before it
  return json;
}

ordered_json tokenizer_config(const char* type) {
  return {{"tokenizer_class", type}, {"clean_up_tokenization_spaces", false}};
}

}  // namespace

std::shared_ptr<const Tokenizer> find_tokenizer(const std::string& path) {
  if (fs::is_directory(path)) {
    if (auto found = tokenizer_in_folder(path)) return found;
    throw DataError(path, 0,
                    std::string("has no tokenizer: none of ") + kTokenizerFile +
                        ", tokenizer.json, tokenizer.model, vocab.json with merges.txt, encoder.json with "
                        "vocab.bpe; try --tokenizer-model with the folder or file of one");
  }
  if (ends_with(path, ".json")) return with_added_tokens(plain_tokenizer_json(path), path);
  if (ends_with(path, ".model")) return load_sentencepiece_tokenizer(path);
  return load_tokenizer(text_tokenizers(), path);
}

std::shared_ptr<const Tokenizer> find_sentencepiece(const std::string& folder) {
  const std::string path = folder + "/tokenizer.model", json = folder + "/tokenizer.json";
  if (!fs::exists(path)) return nullptr;
  SortedJson added = tokens_added_in(folder);
  if (fs::exists(json)) add_missing(added, parse_json<SortedJson>(read_file(json), json)["added_tokens"]);
  return with_folder_controls({load_sentencepiece_tokenizer(path), added}, folder);
}

bool has_tokenizer(const std::string& folder) { return tokenizer_in_folder(folder) != nullptr; }

std::string mask_name(const Tokenizer& tokenizer) {
  for (const char* const name : {"[MASK]", "<mask>"})
    if (tokenizer.find(name)) return name;
  return {};
}

std::string export_tokenizer(const Tokenizer& tokenizer, const std::string& folder) {
  std::string names;
  const auto write = [&](const char* name, const std::string& content) {
    write_atomically(folder + "/" + name, content);
    names += (names.empty() ? "" : ", ") + std::string(name);
  };
  const std::string kind = tokenizer.kind();
  ordered_json config;
  if (kind == "sentencepiece") {
    write("tokenizer.model", sentencepiece_model(tokenizer));
    config = tokenizer_config("LlamaTokenizer");
    config["legacy"] = restarts_after_added(tokenizer);
  } else if (kind == "tokenizer_json") {
    write("tokenizer.json", read_tokenizer_file(tokenizer.plain().serialize(), "the tokenizer").payload);
    config = tokenizer_config("PreTrainedTokenizerFast");
  } else if (kind == "character") {
    write("tokenizer.json", character_json(tokenizer).dump(1) + "\n");
    write(kTokenizerFile, tokenizer.serialize());
    config = tokenizer_config("PreTrainedTokenizerFast");
  } else {
    BytePairFiles files;
    if (kind == "byte") {
      ordered_json vocabulary = ordered_json::object();
      for (int byte = 0; byte < 256; ++byte)
        vocabulary[byte_pair_characters(std::string(1, static_cast<char>(byte)))] = byte;
      files = {vocabulary.dump(), "#version: 0.2\n"};
    } else {
      files = byte_pair_files(tokenizer);
    }
    write("vocab.json", files.vocabulary);
    write("merges.txt", files.merges);
    config = tokenizer_config("GPT2Tokenizer");
    for (const char* special : {"bos_token", "eos_token", "unk_token"}) {
      if (!tokenizer.plain().end()) config[special] = nullptr;
    }
  }
  for (const tokenizer_json::AddedToken& token : added_tokens(tokenizer)) {
    config["added_tokens_decoder"][std::to_string(token.id)] = {
        {"content", token.content}, {"lstrip", token.lstrip},           {"normalized", token.normalized},
        {"rstrip", token.rstrip},   {"single_word", token.single_word}, {"special", token.is_special}};
  }
  if (kind == "sentencepiece" || tokenizer.begin() != tokenizer.plain().begin())
    config["add_bos_token"] = tokenizer.begin().has_value();
  if (const std::string name = TokenizerControls::of(tokenizer).begin_name; !name.empty())
    config["bos_token"] = name;
  if (const std::string name = mask_name(tokenizer); !name.empty()) config["mask_token"] = name;
  write("tokenizer_config.json", config.dump(2) + "\n");
  return names;
}

}  // namespace tapeformer
