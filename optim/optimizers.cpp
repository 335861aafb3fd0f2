#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/lion.h>
#include <tapeformer/optim/muon_adamw.h>
#include <tapeformer/optim/optimizer_groups.h>
#include <tapeformer/optim/optimizers.h>
#include <tapeformer/optim/sgd.h>

namespace tapeformer {

std::vector<OptimizerKind>& optimizer_kinds() {
  static std::vector<OptimizerKind> kinds = {
      optimizer_kind<AdamW>("adamw"),
      optimizer_kind<Sgd>("sgd"),
      optimizer_kind<Lion>("lion"),
      optimizer_kind<MuonAdamW>("muon"),
  };
  return kinds;
}

std::vector<OwnField> own_fields(const FieldList& fields) {
  std::vector<OwnField> own;
  for (const ConfigField& field : fields) own.push_back({field, std::get<double>(*field.value())});
  return own;
}

void set_own_fields(FieldList&& fields, const OwnValues& values) {
  for (ConfigField& field : fields)
    if (const auto found = values.find(field.name); found != values.end()) field.set(found->second);
}

std::string optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerKind& kind : optimizer_kinds()) names.push_back(kind.name);
  return alternatives(names);
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

void OptimizerConfig::describe(const FieldVisitor& field) {
  field("optimizer", Property([this] { return kind; }, [this](const std::string& name) { set_kind(name); }),
        optimizer_names().c_str());
  field("group",
        Property([this] { return texts_of(groups); },
                 [this](const std::vector<std::string>& texts) { groups = parameter_groups_of(texts); }),
        "give parameters whose names match a pattern another optimizer, other options or a share of the "
        "learning rate: 'embedding.*:rate=0.3,weight_decay=0', 'head.*:optimizer=sgd'");
  describe_own_fields(optimizer_kinds(), kind, optimizer_kind_named, options, field);
}

void OptimizerConfig::check() const {
  for (const auto& [name, value] : options)
    if (!option(name)) throw Error("[" + kind + "] there is no option " + name);
  for (const ParameterGroup& group : groups) config_of(group).check();
}

std::unique_ptr<Optimizer> OptimizerConfig::make(std::vector<Parameter> parameters,
                                                 const RowParts& row_parts) const {
  check();
  if (groups.empty()) return optimizer_kind_named(kind).make(std::move(parameters), options, row_parts);
  const std::vector<std::vector<Parameter>> parts = grouped(parameters, groups);
  std::vector<OptimizerGroups::Group> made;
  for (std::size_t i = 0; i < groups.size(); ++i)
    made.push_back({config_of(groups[i]).make(parts[i], row_parts), groups[i].rate});
  if (!parts.back().empty())
    made.push_back({OptimizerConfig{kind, options}.make(parts.back(), row_parts), 1});
  return std::make_unique<OptimizerGroups>("groups", std::move(made));
}

OptimizerConfig OptimizerConfig::config_of(const ParameterGroup& group) const {
  OptimizerConfig config{kind, options};
  if (!group.optimizer.empty()) config.set_kind(group.optimizer);
  for (const auto& [name, value] : group.options) config.options.insert_or_assign(name, value);
  return config;
}

}  // namespace tapeformer
