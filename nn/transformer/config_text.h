#pragma once

#include <tapeformer/autograd/config/config_field.h>

// A model's configuration in the config.json of a run folder.
namespace tapeformer {

std::string config_text(const char* model, const FieldList& fields);

/// A field that the file lacks keeps its value; `check` looks at the whole. Programs may keep more than the
/// fields in the file.
/// Throws: CheckpointError naming what is wrong
void read_config_text(const char* model, const std::string& text, FieldList&& fields,
                      const std::function<void()>& check);

}  // namespace tapeformer
