#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/tensor.h>

#include <cstdint>
#include <string>

namespace tapeformer {

/// Every id must be in [0, end), or be `ignored`; returns how many are in the range.
/// Throws:  ShapeError naming the first that is not and its position, DTypeError unless ids are i32
inline Index check_ids(const char* op, const char* name, const Tensor& ids, Index end, Index ignored = -1,
                       bool ignores = false) {
  const std::int32_t* id = ids.data<std::int32_t>();
  Index inside = 0;
  for (Index i = 0; i < ids.elements(); ++i) {
    if (id[i] >= 0 && id[i] < end && !(ignores && id[i] == ignored)) {
      ++inside;
      continue;
    }
    if (ignores && id[i] == ignored) continue;
    std::string position;
    for (Index axis = ids.rank() - 1, rest = i; axis >= 0; --axis) {
      const Index size = ids.size(static_cast<int>(axis));
      position = std::to_string(rest % size) + (position.empty() ? "" : ",") + position;
      rest /= size;
    }
    throw ShapeError(std::string("[") + op + "] " + name + " must be in [0, " + std::to_string(end) + ")" +
                     (ignores ? " or " + std::to_string(ignored) + " (ignored)" : "") + "; got " +
                     std::to_string(id[i]) + " at [" + position + "] of " + name + "=" + ids.describe());
  }
  return inside;
}

}  // namespace tapeformer
