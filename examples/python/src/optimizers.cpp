#include <tapeformer/examples/python/src/bindings.h>
#include <tapeformer/examples/python/src/config.h>
#include <tapeformer/nn/module.h>
#include <tapeformer/optim/optimizers.h>

#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace tapeformer::python {
namespace {

/// An optimizer of the table optimizer_kinds().
class PythonOptimizer {
 public:
  PythonOptimizer(std::unique_ptr<Optimizer> optimizer) : optimizer_(std::move(optimizer)) {}
  Optimizer& operator*() const { return *optimizer_; }

 private:
  std::unique_ptr<Optimizer> optimizer_;
};

/// A module's parameters, or a list or dict of parameters.
std::vector<Parameter> parameters_of(nb::handle given) {
  if (nb::isinstance<Module>(given)) return nb::cast<Module&>(given).parameters();
  std::vector<Parameter> parameters;
  const nb::object list = nb::isinstance<nb::dict>(given) ? given.attr("values")() : nb::borrow(given);
  for (const nb::handle parameter : list) {
    if (!nb::isinstance<Parameter>(parameter))
      throw nb::type_error("an optimizer takes a module, or parameters, as parameters() returns them");
    parameters.push_back(nb::cast<Parameter>(parameter));
  }
  return parameters;
}

PythonOptimizer make(const std::string& kind, nb::handle parameters, const nb::kwargs& given) {
  OptimizerConfig config;
  config.set_kind(kind);
  for (const auto& [name, value] : given) {
    const std::string option = nb::cast<std::string>(name);
    config.options[option] = std::get<double>(field_value(option, 0.0, value));
  }
  config.check();
  RowParts parts;
  if (nb::isinstance<Module>(parameters)) parts = nb::cast<Module&>(parameters).row_parts();
  return config.make(parameters_of(parameters), parts);
}

/// ", weight_decay: float = 0.01".
std::string options_text(const OptimizerKind& kind) {
  std::string text;
  for (const OwnField& own : kind.own) text += ", " + parameter_text(own.field.name, own.value);
  return text;
}

}  // namespace

void bind_optimizers(nb::module_& module) {
  nb::class_<PythonOptimizer>(module, "Optimizer", "Changes parameters by their gradients.")
      .def(
          "step", [](const PythonOptimizer& self, double rate, double scale) { (*self).step(rate, scale); },
          "learning_rate"_a, "gradient_scale"_a = 1.0, Unlocked(),
          "One update of every parameter that has a gradient, which counts times gradient_scale.")
      .def(
          "clipped_step",
          [](const PythonOptimizer& self, double rate, double most) {
            return (*self).clipped_step(rate, 1, most);
          },
          "learning_rate"_a, "max_norm"_a, Unlocked(),
          "A step that keeps the norm of all gradients at max_norm or below; returns their norm before that.")
      .def("clear_gradients", [](const PythonOptimizer& self) { (*self).clear_gradients(); });
  // A function for each row of the table: adamw, muon, ...
  static const std::pair<const char*, const char*> names[] = {{"AdamW", "adamw"}, {"Muon", "muon"}};
  for (const auto& [name, kind] : names) {
    const OptimizerKind& row = optimizer_kind_named(kind);
    std::string help = "Options:";
    for (const OwnField& own : row.own)
      help += std::string("\n    ") + own.field.name + ": " + own.field.help;
    const std::string signature = std::string("def ") + name +
                                  "(parameters: Module | dict[str, Parameter] | list[Parameter]" +
                                  (row.own.empty() ? "" : ", *") + options_text(row) + ") -> Optimizer";
    module.def(
        name,
        [kind = kind](const nb::object& parameters, const nb::kwargs& given) {
          return make(kind, parameters, given);
        },
        "parameters"_a, "options"_a, nb::sig(signature.c_str()), help.c_str());
  }
}

}  // namespace tapeformer::python
