#include <tapeformer/autograd/format.h>
#include <tapeformer/data/tokenizers/json/read_json.h>
#include <tapeformer/data/tokenizers/tokenizer_controls.h>
#include <tapeformer/examples/language/folder_controls.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <algorithm>
#include <filesystem>

namespace tapeformer {
namespace {

constexpr const char* kTokenizerConfig = "/tokenizer_config.json";

/// The fields of a file's object that are not null; none without the file.
nlohmann::json fields_of(const std::string& path) {
  nlohmann::json fields = nlohmann::json::object();
  if (!std::filesystem::exists(path)) return fields;
  const nlohmann::json all = parse_json<nlohmann::json>(read_file<CheckpointError>(path), path);
  if (!all.is_object()) throw DataError(path, 0, "is not a JSON object");
  for (const auto& [name, value] : all.items())
    if (!value.is_null()) fields[name] = value;
  return fields;
}

/// The name of a special token in the files of a folder; "" if there is none.
std::string named_in(const std::string& folder, const char* role) {
  for (const char* file : {kTokenizerConfig, "/special_tokens_map.json"}) {
    const nlohmann::json fields = fields_of(folder + file);
    if (fields.contains(role)) return token_text(fields.at(role));
  }
  return {};
}

std::vector<std::string> special_tokens_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const char* role : {"bos_token", "eos_token", "unk_token", "pad_token"})
    names.push_back(named_in(folder, role));
  for (const char* file : {kTokenizerConfig, "/special_tokens_map.json"}) {
    const nlohmann::json fields = fields_of(folder + file);
    for (const nlohmann::json& token : fields.value("additional_special_tokens", nlohmann::json::array()))
      names.push_back(token_text(token));
  }
  return names;
}

TokenizerControls controls_with_added(const PlainTokenizer& plain) {
  TokenizerControls controls = TokenizerControls::of(*plain.tokenizer);
  const auto is_own = [&](const nlohmann::json& token) {
    const std::string name = token_text(token);
    return name == "<unk>" || name == "<pad>" ||
           token.at("id") == nlohmann::json(plain.tokenizer->end().value_or(-1)) ||
           token.at("id") == nlohmann::json(plain.tokenizer->begin().value_or(-1));
  };
  if (!std::all_of(plain.added.begin(), plain.added.end(), is_own)) controls.added = plain.added;
  return controls;
}

/// The ids of end tokens in a file; none if it names none.
std::vector<std::int32_t> ends_in(const std::string& path) {
  const nlohmann::json fields = fields_of(path);
  std::vector<std::int32_t> ids;
  if (!fields.contains("eos_token_id")) return ids;
  const nlohmann::json& value = fields.at("eos_token_id");
  for (const nlohmann::json& id : value.is_array() ? value : nlohmann::json::array({value})) {
    if (!id.is_number_integer() || id.get<std::int64_t>() > 0x7fffffff)
      throw DataError(path, 0, "has an eos_token_id that is neither an id nor a list of them");
    if (id.get<std::int64_t>() >= 0) ids.push_back(id.get<std::int32_t>());  // -1 is none
  }
  return ids;
}

TokenizerControls controls_in(const std::string& folder, const PlainTokenizer& given) {
  const Tokenizer& plain = *given.tokenizer;
  const std::string kind = plain.kind();
  const nlohmann::json config = fields_of(folder + kTokenizerConfig);
  TokenizerControls controls = controls_with_added(given);
  const auto refuse = [&](const std::string& what) {
    throw DataError(folder + kTokenizerConfig, 0, "has " + what);
  };
  const auto flag = [&](const char* name) -> std::optional<bool> {
    if (!config.contains(name)) return {};
    if (!config.at(name).is_boolean()) refuse(format("a value of {} that is neither true nor false", name));
    return config.at(name).get<bool>();
  };
  const auto demand = [&](const char* name, bool does) {
    if (flag(name).value_or(does) != does)
      refuse(format("{}={}, which the tokenizer's own file does not do; try --tokenizer-model with that file",
                    name, !does));
  };
  const auto named = [&](const char* role) -> std::optional<std::int32_t> {
    const std::string name = named_in(folder, role);
    for (const nlohmann::json& token : controls.added)
      if (token_text(token) == name) return token.at("id").get<std::int32_t>();
    return plain.find(name);
  };

  if (flag("add_prefix_space")) {
    const std::vector<std::int32_t> example = plain.encode("a");
    demand("add_prefix_space", !example.empty() && plain.bytes_of(example[0]).compare(0, 1, " ") == 0);
  }
  demand("split_special_tokens", false);
  if (kind == "tokenizer_json" && flag("clean_up_tokenization_spaces") == true &&
      fields_of(folder + "/tokenizer.json").at("model").value("type", "BPE") != "BPE")
    demand("clean_up_tokenization_spaces", false);  // transformers does not clean up texts of BPE either
  if (plain.kind() == std::string("sentencepiece"))
    controls.restarts_after_added = flag("legacy").value_or(false);

  if (flag("add_bos_token") == false) controls.begin.reset();
  if (flag("add_bos_token") == true) {
    if (const auto id = named("bos_token"); id && id != controls.begin)
      controls.begin = id, controls.begin_name = named_in(folder, "bos_token");
    if (!controls.begin) refuse("add_bos_token=true, and no bos_token that is in the vocabulary");
  }

  std::vector<std::int32_t> ends = ends_in(folder + "/generation_config.json");
  if (ends.empty()) ends = ends_in(folder + "/config.json");
  if (ends.empty())
    if (const auto id = named("eos_token")) ends = {*id};
  if (!ends.empty()) controls.ends = ends;
  if (controls.ends.empty() && flag("add_eos_token") == true)
    refuse("add_eos_token=true, and no eos_token that is in the vocabulary");
  return controls;
}

}  // namespace

nlohmann::json tokens_added_in(const std::string& folder) {
  nlohmann::json list = nlohmann::json::array();
  const std::string config = folder + kTokenizerConfig;
  const nlohmann::json fields = fields_of(config), older = fields_of(folder + "/added_tokens.json");
  if (!fields.contains("added_tokens_decoder")) {
    const std::vector<std::string> special = special_tokens_in(folder);
    for (const auto& [name, id] : older.items()) {
      const bool is_special = std::find(special.begin(), special.end(), name) != special.end();
      list.push_back({{"id", id}, {"content", name}, {"special", is_special}});
    }
    return list;
  }
  for (const auto& [id, token] : fields.at("added_tokens_decoder").items()) {
    if (!token.is_object() || token_text(token).empty() || id.empty() || id.size() > 9 ||
        id.find_first_not_of("0123456789") != std::string::npos)
      throw DataError(config, 0,
                      "has added_tokens_decoder, whose entry \"" + id + "\" is not an added token");
    list.push_back(token);
    list.back()["id"] = std::stoi(id);
  }
  return list;
}

std::shared_ptr<const Tokenizer> with_added_tokens(PlainTokenizer plain, const std::string& name) {
  const TokenizerControls controls = controls_with_added(plain);
  return with_controls(std::move(plain.tokenizer), controls, name);
}

std::shared_ptr<const Tokenizer> with_folder_controls(PlainTokenizer plain, const std::string& folder) {
  try {
    const TokenizerControls controls = controls_in(folder, plain);
    return with_controls(std::move(plain.tokenizer), controls, folder);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(folder, 0, "has damaged files next to its tokenizer: " + reason_of(error));
  }
}

}  // namespace tapeformer
