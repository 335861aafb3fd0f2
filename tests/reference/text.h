#pragma once

#include <tapeformer/tests/reference/support.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace tapeformer {

/// Whether `text` contains `part`.
inline bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// The ids of tokens.
using Ids = std::vector<std::int32_t>;

}  // namespace tapeformer
