#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/python/src/bindings.h>

namespace nb = nanobind;

namespace tapeformer::python {
namespace {

template <class Exception>
nb::object error(nb::module_& module, const char* name, nb::handle base) {
  nb::exception<Exception> type(module, name, base);
  return type;
}

}  // namespace

void bind_errors(nb::module_& module) {
  // The translator that was registered last is asked first, so the base comes first.
  const nb::object base = error<Error>(module, "Error", PyExc_RuntimeError);
  base.attr("__doc__") = "The base of the library's errors.";
  error<ShapeError>(module, "ShapeError", base);
  error<DTypeError>(module, "DTypeError", base);
  error<DeviceError>(module, "DeviceError", base);
  error<TapeError>(module, "TapeError", base);
  error<DataError>(module, "DataError", base);
  error<CheckpointError>(module, "CheckpointError", base);
}

}  // namespace tapeformer::python

NB_MODULE(_tapeformer, module) {
  using namespace tapeformer::python;
  bind_errors(module);
  bind_tensor(module);
  bind_operations(module);
  bind_gradcheck(module);
  bind_layers(module);
  bind_attention(module);
  bind_models(module);
}
