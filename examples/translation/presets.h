#pragma once

#include <tapeformer/examples/shared/option_table.h>

namespace tapeformer {

/// The first is the one that is used when none is named.
const std::vector<Preset>& translation_presets();

}  // namespace tapeformer
