#pragma once

#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>
#include <limits>

namespace tapeformer::kernels {

// Rules for integers: whether the one at i is allowed, and whether it counts.

/// Allows begin <= id < end and `ignored`, which does not count even if it lies in that range.
struct IdRange {
  static constexpr Index kNone = std::numeric_limits<Index>::max();  // no i32
  Index begin = 0, end = 0;
  Index ignored = kNone;

  TAPEFORMER_HOST_DEVICE bool counts(const std::int32_t* ids, Index i) const {
    return ids[i] != ignored && ids[i] >= begin && ids[i] < end;
  }
  TAPEFORMER_HOST_DEVICE bool allows(const std::int32_t* ids, Index i) const {
    return ids[i] == ignored || counts(ids, i);
  }
};

/// Numbers rise from 0 to `end`, as the starts of packed sequences do.
struct RisingStarts {
  Index count = 0, end = 0;

  TAPEFORMER_HOST_DEVICE bool allows(const std::int32_t* ids, Index i) const {
    return (i == 0 ? ids[i] == 0 : ids[i - 1] <= ids[i]) && (i + 1 < count || ids[i] == end);
  }
  TAPEFORMER_HOST_DEVICE bool counts(const std::int32_t* ids, Index i) const { return allows(ids, i); }
};

/// Lengths, each at most that of its packed sequence, [starts[i], starts[i + 1]).
struct LengthsWithin {
  const std::int32_t* starts = nullptr;

  TAPEFORMER_HOST_DEVICE bool allows(const std::int32_t* ids, Index i) const {
    return ids[i] >= 0 && ids[i] <= Index{starts[i + 1]} - starts[i];
  }
  TAPEFORMER_HOST_DEVICE bool counts(const std::int32_t* ids, Index i) const { return allows(ids, i); }
};

/// *counted = the number of ids [count] that count. The first that is not allowed is written to *error, which
/// otherwise stays unchanged.
TAPEFORMER_KERNEL(check_ids, Index count, const std::int32_t* ids, const T& rule, std::int32_t* counted,
                  cuda::DeviceErrorSlot* error);

}  // namespace tapeformer::kernels
