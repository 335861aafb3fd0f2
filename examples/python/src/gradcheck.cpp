#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/examples/python/src/arrays.h>
#include <tapeformer/examples/python/src/bindings.h>
#include <tapeformer/nn/module.h>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace tapeformer::python {
namespace {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

GradcheckReport check(const nb::callable& function, const nb::object& inputs, Module* module,
                      const GradcheckOptions& options) {
  const bool by_name = nb::isinstance<nb::dict>(inputs);
  NamedTensors checked;
  nb::list positional;
  nb::dict named;
  const auto add = [&](const std::string& name, nb::handle given) {
    const Tensor x = tensor_of(given).clone();  // its values are changed one by one
    checked.emplace_back(name, x);
    if (by_name) {
      named[name.c_str()] = x;
    } else {
      positional.append(x);
    }
  };
  if (by_name) {
    for (const auto& [name, x] : nb::cast<nb::dict>(inputs)) add(nb::cast<std::string>(nb::str(name)), x);
  } else {
    if (!nb::isinstance<nb::sequence>(inputs))
      throw nb::type_error(
          ("inputs must be a list or a dict of arrays; got " + nb::cast<std::string>(nb::repr(inputs)))
              .c_str());
    for (const nb::handle x : nb::cast<nb::sequence>(inputs))
      add("input " + std::to_string(checked.size()), x);
  }
  if (module != nullptr)
    for (auto& [name, parameter] : module->named_parameters()) checked.emplace_back(name, parameter.value());
  const auto call = [&]() -> Tensor {
    const nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();  // Ctrl-C
    const nb::object y = function(*positional, **named);
    if (nb::isinstance<Tensor>(y)) return nb::cast<Tensor>(y);
    throw nb::type_error(
        ("the function must return a tensor; got " + nb::cast<std::string>(nb::repr(y))).c_str());
  };
  const nb::gil_scoped_release release;
  return gradcheck(call, checked, options);
}

}  // namespace

void bind_gradcheck(nb::module_& module) {
  nb::class_<GradcheckInput>(module, "GradcheckInput", "The result for one input.")
      .def_ro("name", &GradcheckInput::name)
      .def_ro("relative_error", &GradcheckInput::relative_error,
              "The largest error over the largest derivative.")
      .def_ro("absolute_error", &GradcheckInput::absolute_error)
      .def_ro("worst_element", &GradcheckInput::worst_element)
      .def_ro("checked", &GradcheckInput::checked, "The number of elements.")
      .def_ro("passed", &GradcheckInput::passed);
  nb::class_<GradcheckReport>(module, "GradcheckReport", "Prints as a table; true if everything passed.")
      .def_ro("inputs", &GradcheckReport::inputs)
      .def_ro("second_inputs", &GradcheckReport::second_inputs, "The results for second derivatives.")
      .def_prop_ro("passed", &GradcheckReport::passed)
      .def_prop_ro("worst_relative_error", &GradcheckReport::worst_relative_error)
      .def_prop_ro("worst_absolute_error", &GradcheckReport::worst_absolute_error)
      .def("__bool__", &GradcheckReport::passed)
      .def("__str__", &GradcheckReport::text);
  const GradcheckOptions defaults;
  module.def(
      "gradcheck",
      [](const nb::callable& function, const nb::object& inputs, Module* layer, bool second_order,
         double step, double tolerance, double absolute, std::uint64_t seed, Index most_elements) {
        GradcheckOptions options;
        options.second_order = second_order;
        options.step = step;
        options.tolerance = tolerance;
        options.absolute = absolute;
        options.seed = seed;
        options.most_elements = most_elements;
        return check(function, inputs, layer, options);
      },
      "function"_a, "inputs"_a, "module"_a = nb::none(), "second_order"_a = false, "step"_a = defaults.step,
      "tolerance"_a = defaults.tolerance, "absolute"_a = defaults.absolute, "seed"_a = defaults.seed,
      "most_elements"_a = 0,
      "Compares the tape's gradients of function(*inputs), or with a dict function(**inputs), with central\n"
      "differences in double. The inputs are f64, and copied; with `module` its parameters, f64 too, are "
      "checked\n"
      "as well. The function must be deterministic: no dropout.");
}

}  // namespace tapeformer::python
