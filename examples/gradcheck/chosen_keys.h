#pragma once

#include <tapeformer/examples/gradcheck/layer_case.h>

namespace tapeformer {

/// Attention to keys that an indexer has chosen; the choice stays as it is.
CheckCase chosen_keys_case(CheckSetting& setting);

}  // namespace tapeformer
