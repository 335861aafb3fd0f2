#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/examples/report/model_costs.h>
#include <tapeformer/nn/module.h>

#include <string>
#include <type_traits>

namespace tapeformer {

/// The fields of a configuration that are set, one a line.
std::string fields_text(const FieldList& fields, const FieldList& defaults);

/// "layers=4, width=128": the fields that are not at their defaults.
std::string changes_text(const FieldList& fields, const FieldList& defaults);
template <class Config>
std::string changes_text(const Config& config) {
  const Config usual;
  return changes_text(fields_of(config), fields_of(usual));
}

/// The parameters with their shapes and numbers of values, module by module, the total, and what is frozen.
std::string parameters_text(Module& model);

/// What --summary prints of a model.
template <class Model>
std::string summary_of(Model& model) {
  const auto& config = model.config();
  const std::decay_t<decltype(config)> usual;
  return fields_text(fields_of(config), fields_of(usual)) + "\n" + parameters_text(model) + "\n" +
         costs_text(model);
}

/// The fields of a configuration as a table in Markdown.
std::string fields_table(const FieldList& fields);

/// Output of a program's command `fields`, in Markdown.
std::string fields_document(const std::string& program, const FieldList& model, const FieldList& options);

}  // namespace tapeformer
