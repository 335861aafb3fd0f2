#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/visibility.h>

namespace tapeformer::kernels {
namespace {

/// The packed sequence that a row belongs to: the last that starts at it or before, and is not empty.
__device__ Index sequence_of(const Visibility& v, Index row) {
  if (v.query_starts == nullptr) return row / v.queries;
  Index low = 0, high = v.sequences;  // starts[low] <= row < starts[high]
  while (high - low > 1) {
    const Index middle = (low + high) / 2;
    (v.query_starts[middle] <= row ? low : high) = middle;
  }
  return low;
}

__global__ void find_visible_keys_kernel(Visibility v, std::int32_t* from, std::int32_t* to) {
  for_each_index(v.batch * v.queries, [&](Index row) {
    const Index i = sequence_of(v, row);
    const Sequence sequence = sequence_at(v, i);
    VisibleRange range = range_at(v, sequence, i, row - sequence.row);
    if (v.key_mask != nullptr) {
      const bool* real = v.key_mask + row / v.queries * v.keys;
      while (range.from < range.to && !real[range.from]) ++range.from;
      while (range.from < range.to && !real[range.to - 1]) --range.to;
    }
    if (v.query_mask != nullptr && !v.query_mask[row]) range.to = range.from;
    from[row] = static_cast<std::int32_t>(range.from);
    to[row] = static_cast<std::int32_t>(range.to);
  });
}

}  // namespace

void find_visible_keys(Cuda on, const Visibility& visibility, std::int32_t* from, std::int32_t* to) {
  launch(on, "find_visible_keys", find_visible_keys_kernel, blocks_for(visibility.batch * visibility.queries),
         kBlock, 0, visibility, from, to);
}

}  // namespace tapeformer::kernels
