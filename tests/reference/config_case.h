#pragma once

#include <tapeformer/autograd/text/config_json.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <string>
#include <type_traits>

// Properties of every field of every configuration.
namespace tapeformer {

using Json = nlohmann::ordered_json;

template <class Config>
Json json_of(const Config& config) {
  Json json = Json::object();
  write_fields(json, config);
  return json;
}

/// Another value that the field may have. False for a field without a value.
template <class Member>
bool change(const Field& field, Member& member) {
  using Value = FieldValue<Member>;
  if constexpr (!std::is_same_v<std::decay_t<decltype(value_of(member))>, Value>) {
    if (!value_of(member)) return false;
  }
  const auto before = value_of(member);
  if constexpr (std::is_same_v<Value, bool>) {
    set_value(member, !before);
  } else if constexpr (std::is_arithmetic_v<Value>) {
    for (const double value : {3.0, 0.25, 5.0, 0.75})
      if (before == value_of(member) && field.rule.holds(static_cast<double>(static_cast<Value>(value))))
        set_value(member, static_cast<Value>(value));
  } else if constexpr (std::is_same_v<Value, std::string>) {
    for (const char* name :
         {"gqa", "half_split", "naive", "rotary", "rms", "silu", "sgd", "bpe", "mha", "layer", "learned",
          "relu", "all", "head", "sigmoid", "alibi", "both", "joint", "output"}) {
      try {
        if (before == value_of(member)) set_value(member, std::string(name));
      } catch (const Error&) {  // a name of another kind
      }
    }
  } else {
    set_value(member, Value{"a:rate=1", "b:rate=2"});  // a name, or a group of parameters
  }
  CHECK_MESSAGE(before != value_of(member), field.name);
  return true;
}

template <class Config>
std::string read_message(const Json& json, Config config = {}) {
  return message_of<Error>([&] { read_fields(json, config); });
}

/// Every field is written and read; a file that lacks it takes its default; a value of another type, and a
/// number outside the field's range, are refused by its name. `start` has a usable value in every field.
template <class Config>
void check_every_field(const Config& start = {}) {
  const Json unchanged = json_of(start);
  Index count = 0;
  for_each_field(start, [&](const Field&, const auto&) { ++count; });
  for (Index chosen = 0; chosen < count; ++chosen) {
    Config config = start;
    std::string name;
    Index at = 0;
    for_each_field(config, [&](const Field& field, auto&& member) {
      if (at++ != chosen || !change(field, member)) return;
      name = field.name;
      if constexpr (std::is_arithmetic_v<FieldValue<decltype(member)>>) {
        for (const double bad : {-1.0, 0.0, 1.0}) {
          if (field.rule.holds(bad)) continue;
          Json json = unchanged;
          json[name] = bad;
          if constexpr (std::is_integral_v<FieldValue<decltype(member)>>)
            json[name] = static_cast<Index>(bad);
          CHECK(read_message<Config>(json).find(name + " " + field.rule.words) == 0);
        }
      }
    });
    if (name.empty()) continue;
    CAPTURE(name);
    Json json = json_of(config);
    CHECK(json != unchanged);
    Config read = start;
    read_fields(json, read);
    CHECK(json_of(read) == json);
    for (const Json& bad : {Json(), Json::array({Json::array()}), Json::object()}) {
      json[name] = bad;
      CHECK(read_message<Config>(json).find(name + " must be ") == 0);
    }
    if (name == "optimizer") continue;  // whose options would be unknown
    json.erase(name);
    Config older = start;
    read_fields(json, older);
    CHECK(json_of(older) == unchanged);
  }
  Json newer = unchanged;
  newer["colour"] = 7;
  CHECK(read_message<Config>(newer) == "it has a field that this version does not know: colour");
}

}  // namespace tapeformer
