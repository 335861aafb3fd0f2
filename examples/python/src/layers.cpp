#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/python/src/bindings.h>
#include <tapeformer/examples/python/src/config.h>
#include <tapeformer/nn/feed_forward.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/nn/norm.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace tapeformer::python {

DType parameter_type(const std::string& name) {
  const DType type = dtype_named(name);
  if (type == DType::f32 || type == DType::f64) return type;
  throw nb::value_error(("parameters are f32 or f64; got " + name).c_str());
}

LayerArguments layer_arguments(const nb::kwargs& given) {
  LayerArguments arguments;
  arguments.fields.update(given);
  if (given.contains("seed")) {
    if (!nb::try_cast<std::uint64_t>(given["seed"], arguments.seed))
      throw nb::type_error("seed must be a whole number, not negative");
    nb::del(arguments.fields["seed"]);
  }
  if (given.contains("dtype")) {
    std::string name;
    if (!nb::try_cast<std::string>(given["dtype"], name))
      throw nb::type_error("dtype must be 'f32' or 'f64'");
    arguments.dtype = parameter_type(name);
    nb::del(arguments.fields["dtype"]);
  }
  return arguments;
}

namespace {

nb::dict state_of(Module& module) {
  nb::dict state;
  for (const auto& [name, parameter] : module.named_parameters())
    state[name.c_str()] = numpy_of(parameter.value().clone());
  return state;
}

void load_state(Module& module, const nb::dict& state) {
  nb::dict superfluous;
  superfluous.update(state);
  std::string wrong;
  std::vector<std::pair<Parameter, Tensor>> values;
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (!state.contains(name.c_str())) {
      wrong += "; " + name + " is missing";
      continue;
    }
    nb::del(superfluous[name.c_str()]);
    const Tensor value = tensor_of(state[name.c_str()]);
    if (value.shape() != parameter.value().shape() || !is_floating(value.dtype())) {
      wrong += "; " + name + " must be " + name_of(parameter.value().dtype()) +
               parameter.value().shape().text() + ", got " + name_of(value.dtype()) + value.shape().text();
    }
    values.emplace_back(parameter, value.to(parameter.value().dtype()));
  }
  for (const auto& [name, value] : superfluous)
    wrong += "; there is no parameter " + nb::cast<std::string>(nb::str(name));
  if (!wrong.empty()) throw ShapeError("[load_state] nothing was loaded" + wrong);
  for (auto& [parameter, value] : values) {
    parameter.value().copy_from(value);
    parameter.refresh_shadow();
  }
}

template <class Layer, class Config>
void make_norm(Layer* self, const Config& config, const std::string& dtype) {
  const DType type = parameter_type(dtype);
  new (self) Layer(config);
  self->to(type);
}

/// A layer of one input.
template <class Layer>
nb::class_<Layer, Module> layer(nb::module_& module, const char* name, const char* help) {
  return nb::class_<Layer, Module>(module, name, help)
      .def(
          "__call__", [](const Layer& self, const Input& x) { return self(x); }, "x"_a, Unlocked());
}

}  // namespace

void bind_layers(nb::module_& module) {
  nb::class_<Module>(module, "Module", "A layer or a model: parameters by name.")
      .def("state", &state_of, "Copies of the values by name, as NumPy arrays.")
      .def("load_state", &load_state, "state"_a,
           "Copies the values of arrays by name into the parameters, of which every one must be named. "
           "Nothing\n"
           "changes unless everything fits.")
      .def("parameter_count", &Module::parameter_count,
           "The parameters' values, frozen ones too; tied ones count once.")
      .def("train", &Module::train, "Turns dropout on (the default).")
      .def("eval", &Module::eval, "Turns dropout off.")
      .def(
          "to",
          [](nb::object self, const std::string& type) {
            nb::cast<Module&>(self).to(parameter_type(type));
            return self;
          },
          "dtype"_a, "Converts every parameter to f32 or f64.");

  layer<Linear>(module, "Linear", "y = f(x weight^T + bias).")
      .def(
          "__init__",
          [](Linear* self, Index inputs, Index outputs, bool bias,
             const std::optional<std::string>& activation, std::uint64_t seed, const std::string& dtype) {
            LinearConfig config{inputs, outputs, bias, {}};
            if (activation) config.activation = activation_named(*activation);
            make(self, config, seed, dtype);
          },
          "inputs"_a, "outputs"_a, "bias"_a = true, "activation"_a = nb::none(), "seed"_a = 0,
          "dtype"_a = "f32");
  layer<LayerNorm>(module, "LayerNorm", "y = (x - mean) / sqrt(var + epsilon) * weight + bias.")
      .def(
          "__init__",
          [](LayerNorm* self, Index width, double epsilon, bool bias, const std::string& dtype) {
            make_norm(self, LayerNormConfig{width, epsilon, bias}, dtype);
          },
          "width"_a, "epsilon"_a = LayerNormConfig().epsilon, "bias"_a = true, "dtype"_a = "f32");
  layer<RmsNorm>(module, "RMSNorm", "y = x / sqrt(mean(x^2) + epsilon) * weight.")
      .def(
          "__init__",
          [](RmsNorm* self, Index width, double epsilon, const std::string& dtype) {
            make_norm(self, RmsNormConfig{width, epsilon}, dtype);
          },
          "width"_a, "epsilon"_a = RmsNormConfig().epsilon, "dtype"_a = "f32");
  layer<FeedForward>(module, "FeedForward",
                     "y = down(dropout(f(up(x)))); gated: y = down(dropout(f(a) * b)), [a, b] = up(x).")
      .def(
          "__init__",
          [](FeedForward* self, Index width, Index hidden, const std::string& activation, double dropout,
             bool bias, bool is_gated, std::uint64_t seed, const std::string& dtype) {
            make(self,
                 FeedForwardConfig{width, hidden, activation_named(activation), dropout, bias, is_gated},
                 seed, dtype);
          },
          "width"_a, "hidden"_a = 0, "activation"_a = "relu", "dropout"_a = 0.0, "bias"_a = true,
          "gated"_a = false, "seed"_a = 0, "dtype"_a = "f32");
}

}  // namespace tapeformer::python
