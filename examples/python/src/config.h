#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/examples/python/src/arrays.h>

#include <nanobind/nanobind.h>

// Configurations as keyword arguments, from their tables of fields.
namespace tapeformer::python {

/// A value of the type of `zero`. Throws: TypeError if it is of another type
FieldValue field_value(const std::string& name, const FieldValue& zero, nanobind::handle object);

/// Sets the fields that `given` names.
/// Throws: TypeError for an unknown field or a value of another type; Error for one that breaks its rule
void set_fields(const nanobind::dict& given, FieldList&& fields);

/// "width: int = 0", as stubs and help() show a parameter.
std::string parameter_text(const std::string& name, const FieldValue& value);
/// ", heads: int = 1, bias: bool = True": every field.
std::string parameters_text(const FieldList& fields);

/// The fields that have a help text, one per line.
std::string help_text(const FieldList& fields);

/// What every layer takes besides its configuration.
struct LayerArguments {
  std::uint64_t seed = 0;
  DType dtype = DType::f32;
  nanobind::dict fields;  ///< the rest
};
LayerArguments layer_arguments(const nanobind::kwargs& given);
inline const char* const kLayerParameters = ", seed: int = 0, dtype: str = 'f32'";
/// Throws: ValueError unless it is f32 or f64
DType parameter_type(const std::string& name);
/// Makes a layer in the memory of `self`.
template <class Layer, class Config>
void make(Layer* self, const Config& config, std::uint64_t seed, const std::string& dtype) {
  const DType type = parameter_type(dtype);
  Generator random(seed);
  new (self) Layer(config, random);
  self->to(type);
}

}  // namespace tapeformer::python
