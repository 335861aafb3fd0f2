#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/shared/summary.h>

#include <iomanip>
#include <sstream>

namespace tapeformer {

namespace {

/// "width                      128           default": a line of --summary.
std::string summary_line(const std::string& name, const std::string& value, bool is_default) {
  std::ostringstream line;
  line << std::left << std::setw(26) << name << ' ';
  if (is_default) line << std::setw(14) << value << " default";
  if (!is_default) line << value;
  return line.str() + "\n";
}

/// A row of a table in Markdown.
std::string field_row(const ConfigField& field) {
  const auto replaced = [](const std::string& text, const std::string& from, const std::string& to) {
    return text.compare(0, from.size(), from) == 0 ? to + text.substr(from.size()) : text;
  };
  const std::string range = field.choices().empty()
                                ? replaced(replaced(field.rule.words, "must be ", ""), "must not be ", "not ")
                                : alternatives(field.choices());
  std::string row = "| `" + field.name + "`";
  for (const std::string& cell :
       {replaced(type_text(field), "a ", ""), field.text(), range, field.help, std::string(field.since)}) {
    row += " | " + cell;
  }
  return row + " |\n";
}

}  // namespace

std::string fields_text(const FieldList& fields, const FieldList& defaults) {
  std::string text;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string value = fields[i].text();
    if (fields[i].value()) text += summary_line(fields[i].name, value, value == defaults[i].text());
  }
  return text;
}

std::string changes_text(const FieldList& fields, const FieldList& defaults) {
  std::string text;
  for (const auto& [field, usual] : changed_fields(fields, defaults))
    text += (text.empty() ? "" : ", ") + field->name + "=" + field->text();
  return text;
}

std::string parameters_text(Module& model) {
  std::ostringstream text;
  Index frozen = 0;
  const auto add = [&](const std::string& path, const std::string& shape, Index count,
                       const char* remark = "") {
    text << std::left << std::setw(48) << path << ' ' << std::setw(16) << shape << ' ' << std::right
         << std::setw(12) << count << remark << '\n';
  };
  for (const auto& [path, parameter] : model.named_parameters()) {
    const Index count = parameter.value().elements();
    add(path, parameter.value().shape().text(), count, parameter.trainable() ? "" : "  frozen");
    if (!parameter.trainable()) frozen += count;
  }
  add("total", "", model.parameter_count());
  if (frozen > 0) add("frozen", "", frozen);
  return text.str();
}

std::string fields_table(const FieldList& fields) {
  std::string text = "| field | type | default | range | meaning | since |\n|---|---|---|---|---|---|\n";
  for (const ConfigField& field : fields) text += field_row(field);
  return text;
}

std::string fields_document(const std::string& program, const FieldList& model, const FieldList& options) {
  return "# config.json of a run of " + program + "\n\nWritten by `" + program +
         " fields`. A field that a file lacks takes its default.\n\n## The model\n\n" + fields_table(model) +
         "\n## `training`: the options of `train`\n\n" + fields_table(options);
}

}  // namespace tapeformer
