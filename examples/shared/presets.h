#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tapeformer {

/// Defaults for the options of a run, under a name; every option can still be given.
struct Preset {
  const char* name;
  const char* about;                 ///< one line for --help
  std::vector<const char*> options;  ///< what differs from the options' own defaults, as JSON, in order
};

/// Throws: Error listing the names there are.
const Preset& preset_named(const std::vector<Preset>& presets, const std::string& name);

/// The value of --preset among a program's arguments; empty if it is not there.
std::string preset_named_in(int argc, const char* const* argv);

/// A paragraph for --help, with what `further` says of a preset.
std::string presets_text(const std::vector<Preset>& presets,
                         const std::function<std::string(const Preset&)>& further = {});

}  // namespace tapeformer
