#pragma once

#include <tapeformer/autograd/text/own_fields.h>
#include <tapeformer/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// A row of the table of optimizers.
struct OptimizerKind {
  std::string name;
  std::vector<OwnField> own;  ///< its options
  std::function<std::unique_ptr<Optimizer>(std::vector<Parameter>, const OwnValues&)> make;
};

/// The row of Algorithm, which has a nested Config (made by default, all of its fields double and described
/// by for_each()) and a constructor Algorithm(parameters, config).
template <class Algorithm>
OptimizerKind optimizer_kind(const char* name) {
  using Config = typename Algorithm::Config;
  OptimizerKind kind;
  kind.name = name;
  const Config defaults;
  for_each_field(defaults, [&](const Field& field, double value) { kind.own.push_back({field, value}); });
  kind.make = [](std::vector<Parameter> parameters, const OwnValues& options) {
    Config config;
    for_each_field(config, [&](const Field& field, double& value) {
      if (const auto found = options.find(field.name); found != options.end()) value = found->second;
    });
    return std::make_unique<Algorithm>(std::move(parameters), config);
  };
  return kind;
}

/// The optimizers that programs offer by name, each with its options. Add your own before the command line is
/// read:
///   optimizer_kinds().push_back(optimizer_kind<Sophia>("sophia"));
std::vector<OptimizerKind>& optimizer_kinds();
/// Throws: Error that lists the known names
const OptimizerKind& optimizer_kind_named(const std::string& name);

/// An optimizer by name, with the options that differ from their defaults.
struct OptimizerConfig {
  std::string kind = "adamw";
  OwnValues options = {};

  /// Changing the kind resets the options to its defaults. Throws: Error that lists the known names
  void set_kind(const std::string& name);
  /// The value of an option; none if the kind has no such option.
  std::optional<double> option(const std::string& name) const;
  /// Throws: Error naming an option that the kind does not have
  std::unique_ptr<Optimizer> make(std::vector<Parameter> parameters) const;

  /// The kind, and the options of every kind.
  template <class Self, class F>
  static void for_each(Self& c, const F& f);
};

/// "adamw or sgd"
std::string optimizer_names();

template <class Self, class F>
void OptimizerConfig::for_each(Self& c, const F& field) {
  const std::string names = optimizer_names();
  field("optimizer", Property{[&c] { return c.kind; }, [&c](const auto& kind) { c.set_kind(kind); }},
        names.c_str());
  for_each_own_field(optimizer_kinds(), c.kind, optimizer_kind_named, c.options, field);
}

}  // namespace tapeformer
