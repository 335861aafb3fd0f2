#pragma once

#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/ids.h>
#include <tapeformer/autograd/ops/require.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tapeformer {

/// Throws:  DTypeError unless x is i32
inline void require_i32(const char* op, const char* name, const Tensor& x) {
  require<DTypeError>(x.dtype() == DType::i32, op, "indices must be i32", {{name, x}}, "to(DType::i32)");
}

/// The number of ids that count by the rule, one of kernels/ids.h: i32 [1] on their device. If one is not
/// allowed, throws the result of describe(error) as a ShapeError: on the CPU at once, on a GPU from one of
/// the next operations, whose kernels must tolerate such ids.
template <class Rule = kernels::IdRange, class Describe>
Tensor count_by(const Rule& rule, const Tensor& ids, const Describe& describe) {
  const Device device = ids.device();
  const Tensor counted = Tensor::empty({1}, DType::i32, device);
  cuda::DeviceErrorSlot first{-1, 0};
  dispatch_on("check_ids", device, [&](auto on) {
    const auto queue = [&](cuda::DeviceErrorSlot* error) {
      kernels::check_ids(on, ids.elements(), ids.address<std::int32_t>(), rule,
                         counted.address<std::int32_t>(), error);
    };
    device.is_cuda() ? cuda::watch_for_device_error(device.index, describe, queue) : queue(&first);
  });
  if (device.is_cuda()) cuda::report_device_errors(device.index);
  if (first.position >= 0) throw ShapeError(describe(first));
  return counted;
}

/// Every id must be in [0, end), or be `ignored`; returns the number in the range, as count_by().
/// Throws:  ShapeError naming the first that is not and its position, DTypeError unless ids are i32
inline Tensor check_ids(const char* op, const char* name, const Tensor& ids, Index end,
                        std::optional<Index> ignored = {}) {
  require_i32(op, name, ids);
  const auto describe = [op, name, shape = ids.shape(), end, ignored](const cuda::DeviceErrorSlot& error) {
    std::string position;
    Index rest = error.position;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      position = format("{}{}{}", rest % shape[axis], position.empty() ? "" : ",", position);
      rest /= shape[axis];
    }
    return format("[{}] {} must be in [0, {}){}; got {} at [{}] of {}=i32{}", op, name, end,
                  ignored ? format(", or {} (ignored)", *ignored) : "", error.value, position, name,
                  shape.text());
  };
  return count_by({0, end, ignored.value_or(kernels::IdRange::kNone)}, ids, describe);
}

}  // namespace tapeformer
