#pragma once

#include <tapeformer/autograd/kernels/cuda/scratch.h>

namespace tapeformer::kernels {

/// Sorts keys [count], those in [0, end): writes them in order with their positions, equal keys in the order
/// of their positions. Other keys come last, as `end`. Queued, without a wait.
class SortedKeys {
 public:
  SortedKeys(Cuda on, Index count, Index end, const std::int32_t* keys);
  const std::int32_t* keys() const { return keys_[last_].data(); }
  const std::int32_t* positions() const { return positions_[last_].data(); }

 private:
  Scratch<std::int32_t> keys_[2], positions_[2];
  int last_ = 1;
};

}  // namespace tapeformer::kernels
