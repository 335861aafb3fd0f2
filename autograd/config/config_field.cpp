#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/autograd/error.h>

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

std::string ConfigField::text() const {
  const auto now = value();
  return now ? value_text(*now) : "none";
}

void FieldVisitor::operator()(const char* name, const FieldMember& member, const char* help, NumberRule rule,
                              const char* since) const {
  fields_.emplace_back(Field{name, help, rule, group_, since}, member);
}

void FieldVisitor::operator()(const char* name, const FieldMember& member, NumberRule rule,
                              const char* since) const {
  if (*group_ == '\0') (*this)(name, member, "", rule, since);
}

void FieldVisitor::path(const char* name, const FieldMember& member, const char* help,
                        const char* since) const {
  fields_.emplace_back(Field{name, help, kAnyNumber, group_, since, true}, member);
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

void check_rule(const std::string& name, const NumberRule& rule, const FieldValue& value) {
  const bool holds = std::visit(
      [&rule](const auto& x) {
        using Value = std::decay_t<decltype(x)>;
        if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>)
          return rule.holds(static_cast<double>(x));
        return true;
      },
      value);
  if (!holds) throw Error(name + " " + rule.words + "; got " + value_text(value));
}

void check_fields(const std::string& op, const FieldList& fields) {
  for (const ConfigField& field : fields)
    if (const auto value = field.value()) check_rule("[" + op + "] " + field.name, field.rule, *value);
}

}  // namespace tapeformer
