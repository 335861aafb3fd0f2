#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/ids.h>

namespace tapeformer::kernels {
namespace {

constexpr int kThreads = 1024;

/// One block, whose threads agree on the first offence.
__global__ void check_ids_kernel(Index count, const std::int32_t* ids, IdRange range, std::int32_t* counted,
                                 cuda::Offence* offence) {
  Index first = count;
  std::int32_t inside = 0;
  for (Index i = threadIdx.x; i < count; i += blockDim.x) {
    inside += range.counts(ids[i]) ? 1 : 0;
    if (first == count && !range.allows(ids[i])) first = i;
  }
  inside = block_sum(inside);
  first = block_reduce(first, count, [](Index a, Index b) { return a < b ? a : b; });
  if (threadIdx.x != 0) return;
  *counted = inside;
  if (first < count) *offence = {first, ids[first]};
}

}  // namespace

void check_ids(Cuda on, Index count, const std::int32_t* ids, const IdRange& range, std::int32_t* counted,
               cuda::Offence* offence) {
  launch(on, "check_ids", check_ids_kernel, dim3(1), dim3(kThreads), 0, count, ids, range, counted, offence);
}

}  // namespace tapeformer::kernels
