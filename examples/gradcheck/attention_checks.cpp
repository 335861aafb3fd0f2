#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/gradcheck/attention_checks.h>

#include <algorithm>

namespace tapeformer {
namespace {

using Names = std::vector<std::string>;

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Throws unless every wanted name is in `known`.
void require_known(const char* option, const Names& wanted, const Names& known) {
  for (const std::string& name : wanted)
    if (!contains(known, name))
      throw Error(std::string(option) + " must be one of " + joined(known, ", ") + "; got " + name);
}

}  // namespace

std::vector<AttentionCheck> selected_checks(const Names& layers, const Names& modes) {
  Names known_layers, known_modes, short_modes;
  std::vector<AttentionCheck> chosen;
  for (AttentionCheck& check : attention_checks()) {
    const std::string mode = check.mode.name, short_mode = mode.substr(mode.find(' ') + 1);
    if (!contains(known_layers, check.layer)) known_layers.push_back(check.layer);
    if (!contains(known_modes, mode)) known_modes.push_back(mode);
    if (!contains(short_modes, short_mode)) short_modes.push_back(short_mode);
    const bool has_mode = modes.empty() || contains(modes, mode) || contains(modes, short_mode);
    if (has_mode && (layers.empty() || contains(layers, check.layer))) chosen.push_back(std::move(check));
  }
  known_modes.insert(known_modes.end(), short_modes.begin(), short_modes.end());
  require_known("--layer", layers, known_layers);
  require_known("--mode", modes, known_modes);
  if (chosen.empty()) throw Error("none of the layers named has any of the modes named; try --list");
  return chosen;
}

}  // namespace tapeformer
