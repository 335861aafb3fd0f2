#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/json.h>
#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/feed_forward.h>
#include <tapeformer/nn/norm.h>
#include <tapeformer/nn/positions.h>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <type_traits>

// How the fields of a model's configuration are written to config.json, enums by name; for sources only.
namespace tapeformer::config_fields {

using Json = nlohmann::ordered_json;
using tapeformer::name_of;

inline const char* name_of(RotaryLayout layout) {
  return layout == RotaryLayout::interleaved ? "interleaved" : "half_split";
}

inline void parse(const std::string& name, Unary& kind) { kind = activation_named(name); }
inline void parse(const std::string& name, PositionKind& kind) { kind = position_kind(name); }
inline void parse(const std::string& name, NormKind& kind) { kind = norm_kind(name); }
inline void parse(const std::string& name, RotaryLayout& layout) {
  for (const RotaryLayout known : {RotaryLayout::interleaved, RotaryLayout::half_split}) {
    if (name == name_of(known)) return void(layout = known);
  }
  throw Error("rotary_layout must be interleaved or half_split; got " + name);
}

/// f(name, field) for every field of how queries and keys are turned.
template <class Config, class F>
void for_each_rotary_field(Config& c, const F& f) {
  f("rotary_base", c.base);
  f("rotary_layout", c.layout);
  f("rotary_components", c.width);
  f("rotary_max_positions", c.max_positions);
  f("rotary_factor", c.factor);
  f("rotary_original_context", c.original_context);
  f("rotary_low_frequency", c.low_frequency);
  f("rotary_high_frequency", c.high_frequency);
}

template <class Field>
void write(Json& json, const char* name, const Field& field) {
  if constexpr (std::is_enum_v<Field>) {
    json[name] = name_of(field);
  } else {
    json[name] = field;
  }
}

/// Sizes are integers from 0 to 2^31 - 1, so that a product of two is an Index.
/// Throws:  Error naming a field of another type or out of range
template <class Field>
void read(const Json& json, const char* name, Field& field) {
  const Json& value = json.at(name);
  const auto require = [&](bool holds, const char* rule) {
    if (!holds) throw Error(std::string(name) + " must be " + rule + "; got " + value.dump(-1, ' ', true));
  };
  if constexpr (std::is_enum_v<Field>) {
    require(value.is_string(), "a string");
    parse(value.get<std::string>(), field);
  } else if constexpr (std::is_same_v<Field, std::string>) {
    require(value.is_string(), "a string");
    field = value.get<std::string>();
  } else if constexpr (std::is_same_v<Field, bool>) {
    require(value.is_boolean(), "true or false");
    field = value.get<bool>();
  } else if constexpr (std::is_same_v<Field, double>) {
    require(value.is_number(), "a number");
    field = value.get<double>();
  } else {
    static_assert(std::is_same_v<Field, Index>);
    require(value.is_number_unsigned() && value.get<std::uint64_t>() <= 0x7fffffff,
            "an integer from 0 to 2147483647");
    field = value.get<Index>();
  }
}

/// What `read_fields(json)` returns, of a configuration whose "model" is `model`.
/// Throws: CheckpointError naming what is wrong
template <class ReadFields>
auto from_text(const std::string& text, const char* model, const ReadFields& read_fields) {
  const Json json = parse_json(text, "the model's configuration is damaged: it");
  try {
    if (json.at("model") != model)
      throw Error(std::string("model must be ") + model + "; got " + json["model"].dump());
    return read_fields(json);
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(std::string("the model's configuration is damaged: ") + error.what());
  } catch (const Error& error) {
    throw CheckpointError(std::string("the model's configuration is not usable: ") + error.what());
  }
}

}  // namespace tapeformer::config_fields
