#include <tapeformer/examples/shared/summary.h>

#include <iomanip>
#include <sstream>

namespace tapeformer {

std::string summary_line(const std::string& name, const std::string& value, bool is_default) {
  std::ostringstream line;
  line << std::left << std::setw(26) << name << ' ';
  if (is_default) line << std::setw(14) << value << " default";
  if (!is_default) line << value;
  return line.str() + "\n";
}

std::string parameters_text(Module& model) {
  std::ostringstream text;
  const auto add = [&](const std::string& path, const std::string& shape, Index count) {
    text << std::left << std::setw(48) << path << ' ' << std::setw(16) << shape << ' ' << std::right
         << std::setw(12) << count << '\n';
  };
  for (const auto& [path, parameter] : model.named_parameters())
    add(path, parameter.value().shape().text(), parameter.value().elements());
  add("total", "", model.parameter_count());
  return text.str();
}

std::string field_row(const Field& field, const std::string& type, const std::string& by_default) {
  const auto replaced = [](const std::string& text, const std::string& from, const std::string& to) {
    return text.compare(0, from.size(), from) == 0 ? to + text.substr(from.size()) : text;
  };
  const std::string range = replaced(replaced(field.rule.words, "must be ", ""), "must not be ", "not ");
  std::string row = "| `" + std::string(field.name) + "`";
  for (const std::string& cell :
       {replaced(type, "a ", ""), by_default, range, std::string(field.help == nullptr ? "" : field.help),
        std::string(field.since)}) {
    row += " | " + cell;
  }
  return row + " |\n";
}

}  // namespace tapeformer
