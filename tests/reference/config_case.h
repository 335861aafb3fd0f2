#pragma once

#include <tapeformer/autograd/config/config_json.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

// Properties of every field of every configuration.
namespace tapeformer {

using Json = nlohmann::ordered_json;

template <class Config>
Json json_of(const Config& config) {
  Json json = Json::object();
  write_fields(json, fields_of(config));
  return json;
}

/// Gives the field another value that it may have. False for a field without a value.
inline bool change(ConfigField& field) {
  const auto before = field.value();
  if (!before) return false;
  std::vector<FieldValue> others;
  if (const bool* flag = std::get_if<bool>(&*before)) others = {!*flag};
  for (const double number : {3.0, 0.25, 5.0, 0.75}) {
    if (std::holds_alternative<double>(*before)) others.emplace_back(number);
    if (std::holds_alternative<Index>(*before)) others.emplace_back(static_cast<Index>(number));
    if (std::holds_alternative<std::uint64_t>(*before))
      others.emplace_back(static_cast<std::uint64_t>(number));
  }
  if (std::holds_alternative<std::string>(*before)) {
    for (const std::string& name : field.choices()) others.emplace_back(name);
    for (const char* name : {"gqa", "mha", "sgd", "DF", "swiglu", "masked"})
      others.emplace_back(std::string(name));
  }
  if (std::holds_alternative<std::vector<std::string>>(*before))
    others.emplace_back(std::vector<std::string>{"a:rate=1", "b:rate=2"});  // names, or groups of parameters
  for (const FieldValue& other : others) {
    try {
      check_value(field.name, field, other);
      if (field.value() == before) field.set(other);
    } catch (const Error&) {  // a name of another kind, or a number out of range
    }
  }
  CHECK_MESSAGE(field.value() != before, field.name);
  return true;
}

template <class Config>
std::string read_message(const Json& json, Config config = {}) {
  return message_of<Error>([&] { read_fields(json, fields_of(config)); });
}

/// Every field is written and read; a file that lacks it takes its default; a value of another type, and a
/// number outside the field's range, are refused by its name. `start` has a usable value in every field.
template <class Config>
void check_every_field(const Config& start = {}) {
  const Json unchanged = json_of(start);
  for (std::size_t chosen = 0; chosen < fields_of(start).size(); ++chosen) {
    Config config = start;
    ConfigField field = fields_of(config)[chosen];
    if (!change(field)) continue;
    const std::string& name = field.name;
    CAPTURE(name);
    for (const Index bad : {-1, 0, 1}) {
      if (field.rule.holds(static_cast<double>(bad))) continue;
      Json json = unchanged;
      json[name] = bad;
      CHECK(read_message<Config>(json).find(name + " " + field.rule.words) == 0);
    }
    Json json = json_of(config);
    CHECK(json != unchanged);
    Config read = start;
    read_fields(json, fields_of(read));
    CHECK(json_of(read) == json);
    for (const Json& bad : {Json(), Json::array({Json::array()}), Json::object()}) {
      json[name] = bad;
      CHECK(read_message<Config>(json).find(name + " must be ") == 0);
    }
    if (name == "optimizer") continue;  // whose options would be unknown
    json.erase(name);
    Config older = start;
    read_fields(json, fields_of(older));
    CHECK(json_of(older) == unchanged);
  }
  Json newer = unchanged;
  newer["colour"] = 7;
  CHECK(read_message<Config>(newer) == "it has a field that this version does not know: colour");
}

}  // namespace tapeformer
