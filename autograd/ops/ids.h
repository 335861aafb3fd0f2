#pragma once

#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tapeformer {

/// Throws:  DTypeError unless x is i32
inline void require_i32(const char* op, const char* name, const Tensor& x) {
  if (x.dtype() == DType::i32) return;
  throw DTypeError(std::string("[") + op + "] " + name + " must be i32; got " + name + "=" + x.describe() +
                   "; try to(DType::i32)");
}

/// Every id must be in [0, end), or be `ignored`; returns how many are in the range.
/// Throws:  ShapeError naming the first that is not and its position, DTypeError unless ids are i32
inline Index check_ids(const char* op, const char* name, const Tensor& ids, Index end,
                       std::optional<Index> ignored = {}) {
  require_i32(op, name, ids);
  const std::int32_t* id = ids.data<std::int32_t>();
  Index inside = 0;
  for (Index i = 0; i < ids.elements(); ++i) {
    if (ignored && id[i] == *ignored) continue;
    if (id[i] >= 0 && id[i] < end) {
      ++inside;
      continue;
    }
    std::string position;
    Index rest = i;
    for (int axis = ids.rank() - 1; axis >= 0; --axis) {
      position = std::to_string(rest % ids.size(axis)) + (position.empty() ? "" : ",") + position;
      rest /= ids.size(axis);
    }
    throw ShapeError(std::string("[") + op + "] " + name + " must be in [0, " + std::to_string(end) + ")" +
                     (ignored ? ", or " + std::to_string(*ignored) + " (ignored)" : "") + "; got " +
                     std::to_string(id[i]) + " at [" + position + "] of " + name + "=" + ids.describe());
  }
  return inside;
}

}  // namespace tapeformer
