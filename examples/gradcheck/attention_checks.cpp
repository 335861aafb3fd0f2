#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/gradcheck/attention_checks.h>
#include <tapeformer/examples/gradcheck/attention_layers.h>

#include <algorithm>

namespace tapeformer {
namespace {

bool is_named(const std::string& name, const std::vector<std::string>& wanted) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
}

std::string without_kind(const std::string& mode) {
  const std::size_t space = mode.find(' ');
  return space == std::string::npos ? mode : mode.substr(space + 1);
}

/// Throws unless every wanted name is in `known`.
void require_known(const char* option, const std::vector<std::string>& wanted,
                   const std::vector<std::string>& known) {
  for (const std::string& name : wanted) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string names;
    for (const std::string& other : known) names += (names.empty() ? "" : ", ") + other;
    throw Error(std::string(option) + " must be one of " + names + "; got " + name);
  }
}

}  // namespace

std::vector<AttentionCheck> attention_checks() {
  std::vector<AttentionCheck> checks;
  for (const CheckedLayer& layer : checked_layers()) {
    for (const AttentionMode& mode : attention_modes()) {
      if (!layer.takes(mode)) continue;
      checks.push_back({layer.name, mode, [layer, mode](const CheckSizes& sizes, DType type) {
                          const Index heads = layer.masks_by_head ? sizes.heads : 1;
                          CheckSetting setting = setting_of(mode, sizes, heads, type);
                          return layer.make(setting);
                        }});
    }
  }
  return checks;
}

std::vector<AttentionCheck> selected_checks(const std::vector<std::string>& layers_wanted,
                                            const std::vector<std::string>& modes_wanted) {
  std::vector<std::string> layer_names, mode_names;
  for (const CheckedLayer& layer : checked_layers()) layer_names.push_back(layer.name);
  for (const AttentionMode& mode : attention_modes()) mode_names.push_back(mode.name);
  for (const AttentionMode& mode : attention_modes()) {
    const std::string name = without_kind(mode.name);
    if (!is_named(name, mode_names)) mode_names.push_back(name);
  }
  require_known("--layer", layers_wanted, layer_names);
  require_known("--mode", modes_wanted, mode_names);
  std::vector<AttentionCheck> chosen;
  for (AttentionCheck& check : attention_checks()) {
    if (!is_named(check.layer, layers_wanted)) continue;
    if (!is_named(check.mode.name, modes_wanted) && !is_named(without_kind(check.mode.name), modes_wanted))
      continue;
    chosen.push_back(std::move(check));
  }
  if (chosen.empty()) throw Error("none of the layers named has any of the modes named; try --list");
  return chosen;
}

}  // namespace tapeformer
