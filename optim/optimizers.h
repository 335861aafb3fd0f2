#pragma once

#include <tapeformer/autograd/config/own_fields.h>
#include <tapeformer/optim/optimizer.h>
#include <tapeformer/optim/parameter_group.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tapeformer {

/// A row of the table of optimizers.
struct OptimizerKind {
  std::string name;           ///< in config.json and --optimizer
  std::vector<OwnField> own;  ///< its options
  /// Makes the optimizer, with the options' values.
  std::function<std::unique_ptr<Optimizer>(std::vector<Parameter>, const OwnValues&, const RowParts&)> make;
};

/// The options of a row: the fields of an algorithm's configuration.
std::vector<OwnField> own_fields(const FieldList& fields);
void set_own_fields(FieldList&& fields, const OwnValues& values);

/// True for a Config that has a member `row_parts`.
template <class Config, class = void>
inline constexpr bool has_row_parts = false;
template <class Config>
inline constexpr bool has_row_parts<Config, std::void_t<decltype(std::declval<Config>().row_parts)>> = true;

/// The row of Algorithm, which has a nested Config (default-constructible; the fields that it describes are
/// doubles) and a constructor Algorithm(parameters, config). A member `row_parts` of Config, if there is one,
/// is set.
template <class Algorithm>
OptimizerKind optimizer_kind(const char* name) {
  using Config = typename Algorithm::Config;
  const auto make = [](std::vector<Parameter> parameters, const OwnValues& options,
                       [[maybe_unused]] const RowParts& row_parts) {
    Config config;
    if constexpr (has_row_parts<Config>) config.row_parts = row_parts;
    set_own_fields(fields_of(config), options);
    return std::make_unique<Algorithm>(std::move(parameters), config);
  };
  return {name, own_fields(fields_of(Config())), make};
}

/// The optimizers that programs offer by name, each with its options. Add your own before the command line is
/// read:
///   optimizer_kinds().push_back(optimizer_kind<Sophia>("sophia"));
std::vector<OptimizerKind>& optimizer_kinds();
/// Throws: Error that lists the known names
const OptimizerKind& optimizer_kind_named(const std::string& name);

/// An optimizer by name, with the options that have been set, and groups of parameters with another kind,
/// options or learning rate.
struct OptimizerConfig {
  std::string kind = "adamw";               ///< a name in optimizer_kinds()
  OwnValues options = {};                   ///< those of the kind's own options that have been set
  std::vector<ParameterGroup> groups = {};  ///< parameters with a kind, options or rate of their own

  /// Changing the kind resets the options to its defaults. Throws: Error that lists the known names
  void set_kind(const std::string& name);
  /// The value of an option; none if the kind has no such option.
  std::optional<double> option(const std::string& name) const;
  /// Throws: Error naming an unknown kind, or an option that a kind lacks
  void check() const;
  /// Throws: as check(), and Error naming a group that has no parameter
  std::unique_ptr<Optimizer> make(std::vector<Parameter> parameters, const RowParts& row_parts = {}) const;

  /// The configuration of a group's parameters.
  OptimizerConfig config_of(const ParameterGroup& group) const;

  /// The kind, the groups, and the options of every kind.
  void describe(const FieldVisitor& field);
};

/// The names of all kinds: "adamw or sgd".
std::string optimizer_names();

}  // namespace tapeformer
