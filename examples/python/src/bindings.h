#pragma once

#include <nanobind/nanobind.h>

// The parts of the module, one per source file.
namespace tapeformer::python {

void bind_errors(nanobind::module_& module);
void bind_tensor(nanobind::module_& module);
void bind_operations(nanobind::module_& module);
void bind_gradcheck(nanobind::module_& module);
void bind_layers(nanobind::module_& module);
void bind_attention(nanobind::module_& module);
void bind_models(nanobind::module_& module);

/// Lets other Python threads run meanwhile: for calls that compute and touch no Python object.
using Unlocked = nanobind::call_guard<nanobind::gil_scoped_release>;

}  // namespace tapeformer::python
