#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/strict_json.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostShown = 60;  // the most characters of a value in a message

std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', true);
  return text.size() <= kMostShown ? text : text.substr(0, kMostShown) + "...";
}

bool is_count(const Json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= 0x7fffffff;
}

}  // namespace

JsonFields::JsonFields(Json json, const std::string& where) : json_(std::move(json)), where_(where) {
  if (!json_.is_object()) throw CheckpointError(where_ + " must be an object; got " + shown(json_));
}

void JsonFields::fail(const std::string& name, const std::string& what) const {
  throw CheckpointError(where_ + name + " " + what);
}

const Json* JsonFields::find(const std::string& name) {
  asked_.insert(name);
  const auto found = json_.find(name);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

template <class T, class Rule>
T JsonFields::checked(const std::string& name, const std::optional<T>& otherwise, const Rule& holds,
                      const char* rule) {
  const Json* const value = find(name);
  if (value == nullptr && !otherwise) fail(name, "is missing");
  if (value == nullptr) return *otherwise;
  if (!holds(*value)) fail(name, format("must be {}; got {}", rule, shown(*value)));
  return value->get<T>();
}

bool JsonFields::has(const std::string& name) { return find(name) != nullptr; }

bool JsonFields::is_null(const std::string& name) {
  asked_.insert(name);
  return json_.contains(name) && json_[name].is_null();
}

Index JsonFields::size(const std::string& name, std::optional<Index> otherwise) {
  const auto holds = [](const Json& value) { return is_count(value) && value != 0; };
  return checked(name, otherwise, holds, "an integer from 1 to 2147483647");
}

Index JsonFields::count(const std::string& name, Index otherwise) {
  return checked(name, std::optional(otherwise), is_count, "an integer from 0 to 2147483647");
}

double JsonFields::number(const std::string& name, std::optional<double> otherwise) {
  const auto holds = [](const Json& value) {
    return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
  };
  return checked(name, otherwise, holds, "a positive number");
}

double JsonFields::rate(const std::string& name, double otherwise) {
  const auto holds = [](const Json& value) {
    return value.is_number() && value.get<double>() >= 0 && value.get<double>() < 1;
  };
  return checked(name, std::optional(otherwise), holds, "in [0, 1)");
}

bool JsonFields::flag(const std::string& name, bool otherwise) {
  return !is_null(name) &&
         checked(name, std::optional(otherwise), std::mem_fn(&Json::is_boolean), "true or false");
}

std::string JsonFields::text(const std::string& name, std::optional<std::string> otherwise) {
  return checked(name, otherwise, std::mem_fn(&Json::is_string), "a string");
}

std::vector<Index> JsonFields::counts(const std::string& name) {
  const auto holds = [](const Json& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(), is_count);
  };
  const std::optional<std::vector<Index>> none;
  return checked(name, none, holds, "a list of integers from 0 to 2147483647");
}

std::vector<std::string> JsonFields::texts(const std::string& name) {
  const auto holds = [](const Json& value) {
    return value.is_array() &&
           std::all_of(value.begin(), value.end(), [](const Json& entry) { return entry.is_string(); });
  };
  return checked(name, std::optional(std::vector<std::string>()), holds, "a list of strings");
}

JsonFields JsonFields::object(const std::string& name) {
  const std::optional<Json> none;
  return JsonFields(checked(name, none, std::mem_fn(&Json::is_object), "an object"), where_ + name + ".");
}

void JsonFields::demand(const std::string& name, const Json& value) {
  const Json* const found = find(name);
  if (found != nullptr && *found != value)
    fail(name, "= " + shown(*found) + " changes the arithmetic and is not implemented");
}

void JsonFields::ignore(std::initializer_list<const char*> names) {
  asked_.insert(names.begin(), names.end());
}

void JsonFields::finish() const {
  for (const auto& [name, value] : json_.items()) {
    if (value.is_null() || asked_.count(name) > 0 || name.compare(0, 1, "_") == 0) continue;
    fail(name, "is unknown here and may change the arithmetic; if it does not, remove it");
  }
}

}  // namespace tapeformer
