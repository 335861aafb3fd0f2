#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/shared/presets.h>

#include <string_view>

namespace tapeformer {

const Preset& preset_named(const std::vector<Preset>& presets, const std::string& name) {
  std::string names;
  for (const Preset& preset : presets) {
    if (preset.name == name) return preset;
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  }
  throw Error("--preset must be one of " + names + "; got " + name);
}

std::string preset_named_in(int argc, const char* const* argv) {
  constexpr std::string_view kFlag = "--preset";
  std::string found;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == kFlag && i + 1 < argc) {
      found = argv[i + 1];
    } else if (argument.substr(0, kFlag.size() + 1) == std::string(kFlag) + "=") {
      found = argument.substr(kFlag.size() + 1);
    }
  }
  return found;
}

std::string presets_text(const std::vector<Preset>& presets,
                         const std::function<std::string(const Preset&)>& further) {
  std::string text = "Presets set the defaults; every option overrides its own:";
  for (const Preset& preset : presets)
    text += std::string("\n  ") + preset.name + ": " + preset.about + (further ? further(preset) : "");
  return text;
}

}  // namespace tapeformer
