#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/translation/generation_config.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <filesystem>

namespace tapeformer {
namespace {

/// A folder's settings of generation, and their file.
struct GenerationSettings {
  explicit GenerationSettings(const std::string& folder) : path(folder + "/generation_config.json") {
    if (!std::filesystem::exists(path)) path = folder + "/config.json";
    json = parse_json(read_file<CheckpointError>(path), path);
    if (!json.is_object()) throw CheckpointError(path + ": is not a JSON object");
    for (auto field = json.begin(); field != json.end();)
      field = field->is_null() ? json.erase(field) : std::next(field);
  }

  /// The value of a setting, or `otherwise`.
  template <class Value>
  Value get(const char* name, const Value& otherwise) const {
    if (!json.contains(name)) return otherwise;
    try {
      const auto value = json[name].get<Value>();
      if (json[name] == value) return value;  // nothing is cut off
    } catch (const Json::exception&) {
    }
    refuse(name);
  }
  [[noreturn]] void refuse(const std::string& name) const {
    throw CheckpointError(
        format("{}: has {}={}, which is not supported; try without it", path, name, json[name].dump()));
  }

  std::string path;
  Json json;
};

}  // namespace

std::optional<std::int32_t> decoder_start_in(const std::string& folder) {
  const std::int32_t start = GenerationSettings(folder).get<std::int32_t>("decoder_start_token_id", -1);
  return start < 0 ? std::nullopt : std::optional(start);
}

SearchConfig read_generation_config(const std::string& folder, const Vocabularies& words) {
  const GenerationSettings settings(folder);
  // Settings that change outputs, with the values at which they do not.
  const Json neutral = {{"do_sample", false},
                        {"num_beam_groups", 1},
                        {"diversity_penalty", 0},
                        {"repetition_penalty", 1},
                        {"encoder_repetition_penalty", 1},
                        {"encoder_no_repeat_ngram_size", 0},
                        {"guidance_scale", 1}};
  for (const auto& [name, value] : neutral.items())
    if (settings.json.contains(name) && settings.json[name] != value) settings.refuse(name);
  for (const char* name :
       {"max_new_tokens", "min_new_tokens", "suppress_tokens", "begin_suppress_tokens", "sequence_bias",
        "exponential_decay_length_penalty", "force_words_ids", "constraints"})
    if (settings.json.contains(name)) settings.refuse(name);
  SearchConfig search;
  words.set_frame(search);
  search.never.clear();
  search.beam = settings.get<Index>("num_beams", 1);
  search.length_penalty = settings.get<double>("length_penalty", 1);
  search.renormalize = settings.get<bool>("renormalize_logits", false);
  search.transformers.emplace();
  const Json early = settings.json.value("early_stopping", Json(false));
  if (!early.is_boolean() && early != "never") settings.refuse("early_stopping");
  search.transformers->early_stopping = early == true      ? EarlyStopping::yes
                                        : early == "never" ? EarlyStopping::never
                                                           : EarlyStopping::no;
  const auto first = settings.get<std::int32_t>("forced_bos_token_id", -1);
  if (first >= 0 && search.forced.empty()) search.forced = {first};  // a language that is chosen goes first
  search.no_repeat_ngram = settings.get<Index>("no_repeat_ngram_size", 0);
  search.min_tokens = settings.get<Index>("min_length", 0) - 1;  // min_length counts the begin token
  const Json stops = settings.json.value("eos_token_id", Json(search.end));
  if (stops != search.end && stops != Json::array({search.end})) settings.refuse("eos_token_id");
  const auto forced = settings.get<std::int32_t>("forced_eos_token_id", -1);
  if (forced >= 0 && forced != search.end) settings.refuse("forced_eos_token_id");
  search.transformers->forced_end = forced >= 0;
  for (const TokenIds& word : settings.get<std::vector<TokenIds>>("bad_words_ids", {})) {
    const bool is_token = word.size() == 1 && word[0] >= 0 && word[0] < words.target->vocabulary_size();
    if (!is_token) settings.refuse("bad_words_ids");
    if (word[0] != search.end) search.never.push_back(word[0]);  // `generate` takes no end for a bad word
  }
  const Index longest = settings.get<Index>("max_length", 0), ends = forced >= 0 ? 2 : 1;
  if (search.no_repeat_ngram < 0) settings.refuse("no_repeat_ngram_size");
  if (search.beam < 1) settings.refuse("num_beams");
  if (longest != 0 && longest <= ends) settings.refuse("max_length");
  if (longest > 0) search.max_tokens = longest - ends;
  return search;
}

std::string generation_config_json(const Vocabularies& words, Index max_length) {
  const SentenceFrame& frame = words.frame;
  std::vector<TokenIds> never = {{words.target->padding()}};
  if (!frame.begins_zero) never.push_back({frame.begin});
  return Json({{"decoder_start_token_id", frame.begin},
               {"eos_token_id", frame.end},
               {"forced_eos_token_id", frame.end},
               {"pad_token_id", words.target->padding()},
               {"bad_words_ids", never},
               {"max_length", max_length},
               {"num_beams", 5},
               {"length_penalty", 1.0},
               {"early_stopping", true}})
             .dump(2) +
         "\n";
}

}  // namespace tapeformer
