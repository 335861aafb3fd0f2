#include <tapeformer/examples/shared/changed_options.h>
#include <tapeformer/examples/shared/option_table.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// An option as on the command line.
std::string given(const ConfigField& option) {
  const std::string flag = flag_of(option.name), text = option.text();
  if (std::holds_alternative<bool>(option.zero())) return text == "true" ? flag : flag + "=" + text;
  return flag + " " + (text.empty() ? "''" : text);
}

}  // namespace

OptionChanges changed_options(const std::vector<FieldChange>& changes, const FieldList& now,
                              const FieldList& then, const std::map<std::string, std::string>& others) {
  OptionChanges options;
  for (const FieldChange& change : changes) {
    const auto other = others.find(change.field);
    const std::string& name = other == others.end() ? change.field : other->second;
    std::size_t i = 0;
    while (i < now.size() && now[i].name != name) ++i;
    const bool is_option = i < now.size() && now[i].value() != then[i].value();
    const auto added = is_option
                           ? std::pair(given(now[i]), given(then[i]))
                           : std::pair(change.field + "=" + change.has, change.field + "=" + change.wants);
    if (std::find(options.begin(), options.end(), added) == options.end()) options.push_back(added);
  }
  return options;
}

std::string wants_text(const OptionChanges& changes) {
  return joined(changes, " ", &OptionChanges::value_type::second);
}

}  // namespace tapeformer
