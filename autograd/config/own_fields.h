#pragma once

#include <tapeformer/autograd/config/config_field.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

/// A numeric option of a single kind, such as SGD's momentum. A row of the table of kinds has a `name` and a
/// list of these, `own`.
struct OwnField {
  Field field;
  double value;  ///< its default
};
/// The values that have been set, by name; all other fields have their defaults.
using OwnValues = std::map<std::string, double>;

/// The value of a kind's field, its default unless set; none if the kind has no such field.
template <class Kind>
std::optional<double> own_value(const Kind& kind, const OwnValues& values, const std::string& name) {
  for (const OwnField& own : kind.own) {
    if (name != own.field.name) continue;
    const auto found = values.find(name);
    return found == values.end() ? own.value : found->second;
  }
  return {};
}

/// Describes the fields that the rows of `kinds` add, each once. They have a value if find(kind), the row of
/// the chosen kind, has them.
template <class Kinds, class Find>
void describe_own_fields(const Kinds& kinds, const std::string& kind, Find* find, OwnValues& values,
                         const FieldVisitor& describe) {
  struct Described {
    Field field;
    std::vector<std::pair<std::string, std::string>> meanings;  // a help text, and its kinds
  };
  std::vector<Described> all;
  for (const auto& row : kinds) {
    for (const OwnField& own : row.own) {
      const std::string help = own.field.help, name = own.field.name;
      auto same = std::find_if(all.begin(), all.end(),
                               [&](const Described& other) { return name == other.field.name; });
      if (same == all.end()) same = all.insert(same, {own.field, {}});
      auto& meanings = same->meanings;
      auto meaning = std::find_if(meanings.begin(), meanings.end(),
                                  [&](const auto& other) { return help == other.first; });
      if (meaning == meanings.end()) {
        meanings.emplace_back(help, row.name);
      } else {
        meaning->second += std::string(", ") + row.name;
      }
    }
  }
  for (const auto& [field, meanings] : all) {
    std::string help;
    for (const auto& [text, names] : meanings) help += (help.empty() ? "" : "; ") + names + ": " + text;
    const auto get = [&kind, &values, find, name = field.name] {
      return own_value(find(kind), values, name);
    };
    const auto set = [&values, name = field.name](const std::optional<double>& value) {
      if (value) values.insert_or_assign(name, *value);
      if (!value) values.erase(name);
    };
    describe(field.name.c_str(), Property(get, set), help.c_str(), field.rule);
  }
}

}  // namespace tapeformer
