#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>

#include <algorithm>
#include <sstream>

namespace tapeformer {
namespace {

template <class Member>
Property property_of(Member* member) {
  return {[member] { return *member; }, [member](const Member& value) { *member = value; }};
}
Property property_of(const Property* property) { return *property; }

}  // namespace

ConfigField::ConfigField(Field field, const FieldMember& member)
    : Field(std::move(field)),
      property_(std::visit([](auto* pointer) { return property_of(pointer); }, member.pointer)),
      member_(std::visit([](auto* pointer) -> const void* { return pointer; }, member.pointer)) {
  if (std::holds_alternative<const Property*>(member.pointer)) member_ = nullptr;
}

Property one_of(std::string& member, std::vector<std::string> choices) {
  Property property = property_of(&member);
  property.choices = std::move(choices);
  return property;
}

std::string ConfigField::text() const {
  const auto now = value();
  return now ? value_text(*now) : "none";
}

Field& FieldVisitor::operator()(const char* name, const FieldMember& member, const char* help,
                                NumberRule rule) const {
  return fields_.emplace_back(Field{name, help, rule, group_, part_}, member);
}

void FieldVisitor::operator()(const char* name, const FieldMember& member, NumberRule rule) const {
  if (*group_ == '\0') (*this)(name, member, "", rule);
}

void FieldVisitor::path(const char* name, const FieldMember& member, const char* help) const {
  (*this)(name, member, help).is_path = true;
}

const char* type_text(const ConfigField& field) {
  return std::visit([](const auto& zero) { return type_text<std::decay_t<decltype(zero)>>(); }, field.zero());
}

std::string value_text(const FieldValue& value) {
  std::ostringstream text;  // to_string() writes tiny numbers as 0
  std::visit(
      [&text](const auto& x) {
        if constexpr (std::is_same_v<decltype(x), const std::vector<std::string>&>) {
          for (const std::string& part : x) text << (&part == &x.front() ? "" : ", ") << part;
        } else {
          text << std::boolalpha << x;
        }
      },
      value);
  return text.str();
}

void check_value(const std::string& name, const ConfigField& field, const FieldValue& value) {
  const bool holds = std::visit(
      [&field](const auto& x) {
        using Value = std::decay_t<decltype(x)>;
        if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>)
          return field.rule.holds(static_cast<double>(x));
        return true;
      },
      value);
  if (!holds) throw Error(name + " " + field.rule.words + "; got " + value_text(value));
  const std::vector<std::string>& choices = field.choices();
  const auto* text = std::get_if<std::string>(&value);
  if (text != nullptr && !choices.empty() && std::count(choices.begin(), choices.end(), *text) == 0)
    throw Error(name + " must be " + alternatives(choices) + "; got " + *text);
}

void check_fields(const std::string& op, const FieldList& fields) {
  for (const ConfigField& field : fields)
    if (const auto value = field.value()) check_value("[" + op + "] " + field.name, field, *value);
}

std::vector<ChangedField> changed_fields(const FieldList& now, const FieldList& usual) {
  std::vector<ChangedField> changed;
  for (std::size_t i = 0; i < now.size(); ++i)
    if (now[i].value() && now[i].value() != usual[i].value()) changed.push_back({&now[i], &usual[i]});
  return changed;
}

}  // namespace tapeformer
