#pragma once

#include <tapeformer/autograd/kernels/cuda.h>
#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>
#include <limits>

namespace tapeformer::kernels {

/// Which integers are allowed: begin <= id < end, and `ignored`, which may be among them.
struct IdRange {
  static constexpr Index kNone = std::numeric_limits<Index>::max();  // no i32
  Index begin = 0, end = 0;
  Index ignored = kNone;

  TAPEFORMER_HOST_DEVICE bool counts(std::int32_t id) const {
    return id != ignored && id >= begin && id < end;
  }
  TAPEFORMER_HOST_DEVICE bool allows(std::int32_t id) const { return id == ignored || counts(id); }
};

/// *counted = how many of ids [count] are in the range and not ignored. The first that is not allowed goes to
/// *offence, which is left alone when there is none.
void check_ids(Cpu, Index count, const std::int32_t* ids, const IdRange& range, std::int32_t* counted,
               cuda::Offence* offence);
void check_ids(Cuda, Index count, const std::int32_t* ids, const IdRange& range, std::int32_t* counted,
               cuda::Offence* offence);

}  // namespace tapeformer::kernels
