#pragma once

#include <string>
#include <vector>

namespace tapeformer {

/// Defaults for the options of a training, under a name; every option can still be given.
struct LanguagePreset {
  const char* name;
  const char* about;                 ///< one line for --help
  std::vector<const char*> options;  ///< what differs from LanguageOptions' own defaults, as JSON, in order
};

/// The first is the one that is used when none is named.
const std::vector<LanguagePreset>& language_presets();

/// Throws: Error listing the names there are.
const LanguagePreset& language_preset(const std::string& name);

/// The value of --preset among a program's arguments; empty if it is not there.
std::string preset_named_in(int argc, const char* const* argv);

/// A paragraph for --help.
std::string presets_text();

}  // namespace tapeformer
