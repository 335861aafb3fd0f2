#pragma once

#include <tapeformer/autograd/text/config_field.h>
#include <tapeformer/examples/report/model_costs.h>
#include <tapeformer/nn/module.h>

#include <string>
#include <vector>

namespace tapeformer {

/// "width                      128           default": a line of --summary.
std::string summary_line(const std::string& name, const std::string& value, bool is_default);

/// The fields of a configuration, one a line.
template <class Config>
std::string fields_text(const Config& config) {
  std::vector<std::string> defaults;
  const Config usual;
  for_each_field(usual,
                 [&](const Field&, const auto& member) { defaults.push_back(value_text(value_of(member))); });
  std::string text;
  auto by_default = defaults.begin();
  for_each_field(config, [&](const Field& field, const auto& member) {
    const std::string value = value_text(value_of(member));
    if (is_set(member)) text += summary_line(field.name, value, value == *by_default);
    ++by_default;
  });
  return text;
}

/// The parameters with their shapes and numbers of values, module by module, and the total.
std::string parameters_text(Module& model);

/// What --summary prints of a model.
template <class Model>
std::string summary_of(Model& model) {
  return fields_text(model.config()) + "\n" + parameters_text(model) + "\n" + costs_text(model);
}

/// A row of a table in Markdown.
std::string field_row(const Field& field, const std::string& type, const std::string& by_default);

/// The fields of a configuration as a table in Markdown.
template <class Config>
std::string fields_table(const Config& config) {
  std::string text = "| field | type | default | range | meaning | since |\n|---|---|---|---|---|---|\n";
  for_each_field(config, [&](const Field& field, const auto& member) {
    text += field_row(field, type_text<FieldValue<decltype(member)>>(), value_text(value_of(member)));
  });
  return text;
}

/// The document that the command `fields` of a program prints, and that lies beside its sources as FIELDS.md.
template <class Config, class Options>
std::string fields_document(const std::string& program, const Config& model, const Options& options) {
  return "# config.json of a run of " + program + "\n\nWritten by `" + program +
         " fields`. A field that a file lacks takes its default.\n\n## The "
         "model\n\n" +
         fields_table(model) + "\n## `training`: the options of `train`\n\n" + fields_table(options);
}

}  // namespace tapeformer
