#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace tapeformer {

/// True if earlier versions had a field of this name, and `value` was its default or any value of it can be
/// dropped, so that their files load without it. False for a name that no version had.
/// Throws: Error "NAME was retired in the course of version 0.1.0 and must be DEFAULT; got VALUE; try the
///         program that wrote it"
bool is_retired_field(const std::string& name, const nlohmann::ordered_json& value);
/// Erases the fields of `json` that earlier versions had, whatever their values.
void erase_retired_fields(nlohmann::ordered_json& json);

}  // namespace tapeformer
