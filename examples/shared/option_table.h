#pragma once

#include <tapeformer/autograd/config/config_json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/run_folder.h>
#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/experts.h>
#include <tapeformer/nn/positions.h>

// A program's options, described like the fields of a configuration: see config_field.h.
namespace tapeformer {

/// "--learning-rate" for learning_rate.
std::string flag_of(std::string name);

inline void require(bool holds, const std::string& rule) {
  if (!holds) throw Error(rule);
}

/// A flag that is the negation of `member`.
Property negated(bool& member);

/// Defaults for small texts, as JSON.
struct SizeDefaults {
  Index most;  ///< the largest number of examples for which these defaults hold
  const char* options;
};

/// Named defaults for the options of a run; every option can still be given.
struct Preset {
  const char* name;
  const char* about;                       ///< one line for --help
  std::vector<const char*> options;        ///< JSON objects of values that replace the defaults, in turn
  std::vector<SizeDefaults> by_size = {};  ///< from small to large; the first that is large enough counts
};

/// The element of a list with this name. Throws: Error "WHAT must be one of NAMES; got NAME"
template <class List>
const auto& element_named(const List& list, const std::string& name, const std::string& what) {
  for (const auto& element : list)
    if (element.name == name) return element;
  const auto name_of = [](const auto& element) { return element.name; };
  throw Error(format("{} must be one of {}; got {}", what, joined(list, ", ", name_of), name));
}

/// The value of --preset among a program's arguments.
std::optional<std::string> preset_named_in(int argc, const char* const* argv);

/// A paragraph for --help; `further` adds a text to each preset.
std::string presets_text(const std::vector<Preset>& presets,
                         const std::function<std::string(const Preset&)>& further = {});

/// Sets the preset's defaults for a text of `size` examples, except options that `command` was given. Returns
/// them for the log: "--dropout 0.3 --vocabulary 2000"; empty if there are none.
std::string choose_by_size(FieldList&& fields, const Preset& preset, Index size, const Command& command);

/// Adds a flag for every option of type bool, and for the others an option with a value, or with any number
/// of values for lists.
void add_options(const Command& command, FieldList&& fields);

/// Makes paths in options absolute, so that a run can be resumed and evaluated from another folder.
/// Throws: Error naming an option whose text is not UTF-8, which JSON cannot hold
void make_absolute(FieldList&& fields);

/// Reads options; one that an older run lacks keeps its default.
/// Throws: CheckpointError that names an unusable or unknown option
void read_options(const nlohmann::ordered_json& json, FieldList&& fields);

// The options of a run to JSON and back; from_json() as read_options().
template <class Options, class = decltype(Options::training)>
void to_json(nlohmann::ordered_json& json, const Options& options) {
  write_fields(json, fields_of(options));
}
template <class Options, class = decltype(Options::training)>
void from_json(const nlohmann::ordered_json& json, Options& options) {
  read_options(json, fields_of(options));
}

/// Throws: CheckpointError unless `folder` has a config.json and no `file_of_other`, which only runs of the
///         program `other` have; `remedy` says what to try
void check_run_folder(const std::string& folder, const char* file_of_other, const char* other,
                      const char* remedy);
/// Throws: CheckpointError if the run in the folder has no weights yet
void check_trained(const std::string& folder);

/// Reads the options in the config.json of a run. Throws: CheckpointError; DataError if it cannot be read
void read_options(const RunFolder& folder, FieldList&& fields);
template <class Options>
Options options_of(const RunFolder& folder) {
  Options options;
  read_options(folder, fields_of(options));
  return options;
}

/// The log's text on a run that starts from the model in the folder `from`. If the folder has that model's
/// options, a second line names those of the groups Preset and Training and those of dropout that differ in
/// the new run, whose options are `now`, with the old values in brackets: "--dropout 0.1 (0.05)".
std::string fine_tuning_text(const std::string& from, const nlohmann::ordered_json& now,
                             const FieldList& fields);

/// Turns `model`, the options of the model in the folder `from`, into those of a run that starts from it: its
/// dropout rates and adapters become those in `asked`, a list of the same options.
/// Throws: Error naming an option of the groups Model and Vocabulary that `command` was given and that
///         contradicts them
void take_fine_tuned(FieldList&& model, const FieldList& asked, const std::string& from,
                     const Command& command);

/// Throws: Error naming an option of adapters that was given without effect
void refuse_unused_adapters(const Command& command, bool has_base, bool has_adapters);
/// Throws: Error naming an option of positions' buckets, attention or experts that was given without effect
void refuse_unused_parts(const Command& command, PositionKind positions, const AttentionConfig& attention,
                         const ExpertsConfig& experts);

/// Throws: Error "--NAME RULE; got VALUE" for a number outside its option's range, or an unknown name
void check_options(const FieldList& fields);

}  // namespace tapeformer
