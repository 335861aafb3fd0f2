#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/optimizers.h>
#include <tapeformer/optim/sgd.h>

#include <algorithm>

namespace tapeformer {
namespace {

const OptimizerKind& kind_named(const std::string& name) {
  for (const OptimizerKind& kind : optimizer_kinds())
    if (kind.name == name) return kind;
  throw Error("the optimizer must be " + optimizer_names() + "; got " + name);
}

const OptimizerKind::Option* find_option(const OptimizerKind& kind, const std::string& name) {
  const auto found = std::find_if(kind.options.begin(), kind.options.end(),
                                  [&](const auto& option) { return option.field.name == name; });
  return found == kind.options.end() ? nullptr : &*found;
}

}  // namespace

std::vector<OptimizerKind>& optimizer_kinds() {
  static std::vector<OptimizerKind> kinds = {
      optimizer_kind<AdamW>("adamw"),
      optimizer_kind<Sgd>("sgd"),
  };
  return kinds;
}

std::string optimizer_names() {
  std::string names;
  for (std::size_t i = 0; i < optimizer_kinds().size(); ++i) {
    if (i > 0) names += i + 1 < optimizer_kinds().size() ? ", " : " or ";
    names += optimizer_kinds()[i].name;
  }
  return names;
}

std::vector<SharedOption> optimizer_options() {
  std::vector<SharedOption> result;
  for (const OptimizerKind& kind : optimizer_kinds()) {
    for (const auto& [field, value] : kind.options) {
      const auto same = std::find_if(
          result.begin(), result.end(),
          [&name = field.name](const SharedOption& other) { return std::string(other.field.name) == name; });
      const std::string help = kind.name + ": " + field.help;
      if (same == result.end()) {
        result.push_back({field, help});
      } else {
        same->help += "; " + help;
      }
    }
  }
  return result;
}

void OptimizerConfig::set_kind(const std::string& name) {
  kind_named(name);
  if (name != kind) options.clear();
  kind = name;
}

std::optional<double> OptimizerConfig::option(const std::string& name) const {
  const OptimizerKind::Option* known = find_option(kind_named(kind), name);
  if (known == nullptr) return {};
  const auto found = options.find(name);
  return found == options.end() ? known->value : found->second;
}

std::unique_ptr<Optimizer> OptimizerConfig::make(std::vector<Parameter> parameters) const {
  const OptimizerKind& made = kind_named(kind);
  for (const auto& [name, value] : options)
    if (find_option(made, name) == nullptr) throw Error("[" + kind + "] there is no option " + name);
  return made.make(std::move(parameters), options);
}

}  // namespace tapeformer
