#include <tapeformer/optim/adafactor.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/lion.h>
#include <tapeformer/optim/optimizers.h>
#include <tapeformer/optim/schedule_free.h>
#include <tapeformer/optim/sgd.h>

namespace tapeformer {

std::vector<OptimizerKind>& optimizer_kinds() {
  static std::vector<OptimizerKind> kinds = {
      optimizer_kind<AdamW>("adamw"),         optimizer_kind<Sgd>("sgd"),
      optimizer_kind<Lion>("lion"),           optimizer_kind<ScheduleFreeAdamW>("schedule_free"),
      optimizer_kind<Adafactor>("adafactor"),
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

const OptimizerKind& optimizer_kind_named(const std::string& name) {
  for (const OptimizerKind& kind : optimizer_kinds())
    if (kind.name == name) return kind;
  throw Error("the optimizer must be " + optimizer_names() + "; got " + name);
}

void OptimizerConfig::set_kind(const std::string& name) {
  optimizer_kind_named(name);
  if (name != kind) options.clear();
  kind = name;
}

std::optional<double> OptimizerConfig::option(const std::string& name) const {
  return own_value(optimizer_kind_named(kind), options, name);
}

std::unique_ptr<Optimizer> OptimizerConfig::make(std::vector<Parameter> parameters) const {
  for (const auto& [name, value] : options)
    if (!option(name)) throw Error("[" + kind + "] there is no option " + name);
  return optimizer_kind_named(kind).make(std::move(parameters), options);
}

}  // namespace tapeformer
