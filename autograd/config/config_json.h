#pragma once

#include <tapeformer/autograd/config/config_field.h>

#include <nlohmann/json_fwd.hpp>

#include <initializer_list>

// Configurations as JSON, field by field.
namespace tapeformer {

/// Throws: Error naming a field of another type or one that violates its rule
void read_field(const nlohmann::ordered_json& json, ConfigField& field);

void write_fields(nlohmann::ordered_json& json, const FieldList& fields);

/// Reads fields; a missing one keeps its default. `beside` names further keys of the object. A field of
/// earlier versions (see retired_fields.h) is skipped if it has its default.
/// Throws: Error that names an unusable, retired or unknown field
void read_fields(const nlohmann::ordered_json& json, FieldList&& fields,
                 std::initializer_list<const char*> beside = {});

}  // namespace tapeformer
