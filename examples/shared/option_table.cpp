#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/config/retired_fields.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/examples/shared/option_table.h>
#include <tapeformer/nn/formats/ends_with.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace tapeformer {
namespace {

bool is_of_adapters(const std::string& flag) { return flag.rfind("--lora", 0) == 0; }

/// Whether an option only changes which keys an indexer chooses, or its loss, and not its parameters.
bool changes_choice(const std::string& flag, const ConfigField& has, const ConfigField& asked) {
  return flag == "--index-loss" || (flag == "--index-top-k" && has.text() != "0" && asked.text() != "0");
}

/// "--dropout 0.3 --vocabulary 2000" for these values.
std::string options_text(const Json& options) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : options.items()) texts.push_back(flag_of(name) + " " + value.dump());
  return joined(texts, " ");
}

}  // namespace

std::string flag_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

Property negated(bool& member) {
  return {[&member] { return !member; }, [&member](bool value) { member = !value; }};
}

std::optional<std::string> preset_named_in(int argc, const char* const* argv) {
  const std::string flag = "--preset=";
  std::optional<std::string> found;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument + "=" == flag && i + 1 < argc) found = argv[i + 1];
    if (argument.rfind(flag, 0) == 0) found = argument.substr(flag.size());
  }
  return found;
}

std::string presets_text(const std::vector<Preset>& presets,
                         const std::function<std::string(const Preset&)>& further) {
  std::string text = "Presets set the defaults; every option overrides its own:";
  for (const Preset& preset : presets) {
    text += std::string("\n  ") + preset.name + ": " + preset.about + (further ? further(preset) : "");
    for (const SizeDefaults& row : preset.by_size)
      text += format("\n    at most {} examples: {}", row.most, options_text(parse_json(row.options)));
  }
  return text;
}

std::string choose_by_size(FieldList&& fields, const Preset& preset, Index size, const Command& command) {
  for (const SizeDefaults& row : preset.by_size) {
    if (size > row.most) continue;
    const Json defaults = parse_json(row.options);
    Json chosen = Json::object();
    for (const auto& [name, value] : defaults.items())
      if (!command.find(flag_of(name)).given()) chosen[name] = value;
    read_options(chosen, std::move(fields));
    return options_text(chosen);
  }
  return {};
}

void add_options(const Command& command, FieldList&& fields) {
  for (ConfigField& field : fields) {
    const std::string flag = flag_of(field.name);
    const auto set = [flag, field](FieldValue value) mutable {
      const std::vector<std::string>& choices = field.choices();
      const auto* word = std::get_if<std::string>(&value);
      if (word != nullptr && *word == "true" && !choices.empty() && choices.front() == "none")
        value = choices[1];  // older files have a flag instead of a name
      check_value(flag, field, value);
      try {
        field.set(value);
      } catch (const Error& error) {
        throw Error(flag + ": " + error.what());
      }
    };
    const auto add = [&](const auto& zero) {
      using Value = std::decay_t<decltype(zero)>;
      const auto now = field.value();
      return command.value<Value>(flag, now ? std::get<Value>(*now) : std::optional<Value>(), set, field.help,
                                  field.rule);
    };
    const CommandOption option = std::visit(add, field.zero());
    option.group(*field.part == '\0' ? field.group : format("{}: {}", field.group, field.part));
    if (field.is_path) option.not_empty();
  }
}

void make_absolute(FieldList&& fields) {
  for (ConfigField& field : fields) {
    std::optional<FieldValue> value = field.value();
    if (!value) continue;
    const auto change = [&field](std::string& text) {
      if (field.is_path && !text.empty()) text = std::filesystem::absolute(text).string();
      require(find_invalid_utf8(text) == text.npos,
              format("{} must be {} in UTF-8, for config.json; got {}{}", flag_of(field.name),
                     field.is_path ? "a path" : "text", text,
                     field.is_path ? "; try another name, or a link" : ""));
    };
    if (auto* text = std::get_if<std::string>(&*value)) change(*text);
    if (auto* texts = std::get_if<std::vector<std::string>>(&*value))
      std::for_each(texts->begin(), texts->end(), change);
    if (field.is_path) field.set(*value);
  }
}

void read_options(const nlohmann::ordered_json& json, FieldList&& fields) {
  try {
    read_fields(json, std::move(fields));
  } catch (const Error& error) {
    throw CheckpointError(std::string("the run's options are not usable: ") + error.what());
  }
}

void check_run_folder(const std::string& folder, const char* file_of_other, const char* other,
                      const char* remedy) {
  const bool is_other = std::filesystem::exists(folder + "/" + file_of_other);
  if (std::filesystem::exists(folder + "/config.json") && !is_other) return;
  throw CheckpointError(format("{}: {}; try {}", folder,
                               !std::filesystem::is_directory(folder) ? "is not a folder"
                               : is_other                             ? std::string("is a run of ") + other
                                                                      : "is not a run: it has no config.json",
                               remedy));
}

void check_trained(const std::string& folder) {
  if (std::filesystem::exists(folder + "/weights.safetensors")) return;
  throw CheckpointError(folder +
                        ": has no weights.safetensors: the run has not reached its first validation; "
                        "continue it with train --resume");
}

void read_options(const RunFolder& folder, FieldList&& fields) {
  // A model can be evaluated or fine-tuned without knowing what trained it, such as an optimizer that has
  // been retired. Fields that change the model are in its own configuration too.
  try {
    Json training = folder.config().at("training");
    erase_retired_fields(training);
    for (const ConfigField& field : fields)
      if (field.group == std::string("Training") && std::holds_alternative<std::string>(field.zero()))
        training.erase(field.name);
    read_options(training, std::move(fields));
  } catch (const CheckpointError& error) {
    throw CheckpointError(folder.file("config.json") + ": " + error.what());
  } catch (const Json::exception& error) {
    throw CheckpointError(folder.file("config.json") +
                          ": was not written by this program: " + reason_of(error));
  }
}

std::string fine_tuning_text(const std::string& from, const nlohmann::ordered_json& now,
                             const FieldList& fields) {
  const RunFolder folder(from);
  const bool tells = std::filesystem::exists(folder.file("config.json"));
  const Json trained = tells ? folder.config().value("training", Json::object()) : Json::object();
  std::vector<std::string> others;
  for (const ConfigField& field : fields) {
    const std::string group = field.group, &name = field.name;
    const bool is_setting =
        group == "Preset" || group == "Training" || name.find("dropout") != std::string::npos;
    if (is_setting && now.contains(name) && trained.contains(name) && now[name] != trained[name])
      others.push_back(format("{} {} ({})", flag_of(name), now[name].dump(), trained[name].dump()));
  }
  return format("starts from the weights in {}; optimizer and schedule start again", from) +
         (others.empty()
              ? ""
              : "\nnote: settings that differ from that run's (in brackets): " + joined(others, ", "));
}

void take_fine_tuned(FieldList&& model, const FieldList& asked, const std::string& from,
                     const Command& command) {
  for (std::size_t i = 0; i < model.size(); ++i) {
    const std::string group = asked[i].group, flag = flag_of(asked[i].name);
    if ((group != "Model" && group != "Vocabulary") || flag == "--from") continue;
    const bool has_given = command.find(flag).given();
    if (ends_with(flag, "dropout") || is_of_adapters(flag) ||
        (has_given && changes_choice(flag, model[i], asked[i]))) {
      model[i].set(asked[i].value());
    } else if (has_given && asked[i].value() != model[i].value()) {
      const std::string has = model[i].text();
      throw Error(format("{} {} contradicts --from {}, which has {}; leave it out", flag, asked[i].text(),
                         from, has.empty() ? "none" : has));
    }
  }
}

void refuse_unused_parts(const Command& command, PositionKind positions, const AttentionConfig& attention,
                         const ExpertsConfig& experts) {
  if (positions != PositionKind::buckets)
    command.refuse({"--bias-buckets", "--bias-distance"}, "without --positions buckets");
  if (attention.moba_block == 0) command.refuse({"--moba-top-k"}, "without --moba-block");
  if (attention.index_top_k == 0)
    command.refuse({"--index-heads", "--index-width", "--index-loss"}, "without --index-top-k");
  if (experts.experts > 0) return;
  for (const ConfigField& field : fields_of(experts))
    if (field.name != std::string("experts"))
      command.refuse({flag_of(field.name).c_str()}, "without --experts");
}

void refuse_unused_adapters(const Command& command, bool has_base, bool has_adapters) {
  if (!has_base)
    command.refuse({"--lora", "--lora-alpha", "--lora-targets"}, "without --from");
  else if (!has_adapters)
    command.refuse({"--lora-alpha", "--lora-targets"}, "without --lora");
}

void check_options(const FieldList& fields) {
  for (const ConfigField& field : fields)
    if (const auto value = field.value()) check_value(flag_of(field.name), field, *value);
}

}  // namespace tapeformer
