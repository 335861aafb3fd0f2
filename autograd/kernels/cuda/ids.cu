#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>
#include <tapeformer/autograd/kernels/ids.h>

namespace tapeformer::kernels {
namespace {

constexpr int kThreads = 1024;
constexpr Index kIdsOfBlock = 16 * kThreads;

/// The number of ids that count, and the position of the first that is not allowed.
struct Found {
  Index first;
  std::int32_t counted;
};

struct Earlier {
  __device__ Index operator()(Index a, Index b) const { return a < b ? a : b; }
};

/// The result of the whole block; `none` is larger than every position.
__device__ Found joined(Found own, Index none) {
  return {block_reduce(own.first, none, Earlier{}), block_sum(own.counted)};
}

__device__ void tell(const Found& found, Index count, const std::int32_t* ids, std::int32_t* counted,
                     cuda::DeviceErrorSlot* error) {
  if (threadIdx.x != 0) return;
  *counted = found.counted;
  if (found.first < count) *error = {found.first, ids[found.first]};
}

/// A block's result for its kIdsOfBlock; a single block reports it.
template <class Rule>
__global__ void check_ids_kernel(Index count, const std::int32_t* ids, Rule rule, Found* parts,
                                 std::int32_t* counted, cuda::DeviceErrorSlot* error) {
  const Index from = blockIdx.x * kIdsOfBlock, end = from + kIdsOfBlock < count ? from + kIdsOfBlock : count;
  Found own{count, 0};
  for (Index i = from + threadIdx.x; i < end; i += kThreads) {
    own.counted += rule.counts(ids, i) ? 1 : 0;
    if (own.first == count && !rule.allows(ids, i)) own.first = i;
  }
  const Found all = joined(own, count);
  if (parts == nullptr) return tell(all, count, ids, counted, error);
  if (threadIdx.x == 0) parts[blockIdx.x] = all;
}

/// Runs as one block.
__global__ void join_ids_kernel(Index count, const std::int32_t* ids, Index blocks, const Found* parts,
                                std::int32_t* counted, cuda::DeviceErrorSlot* error) {
  Found own{count, 0};
  for (Index i = threadIdx.x; i < blocks; i += kThreads)
    own = {Earlier{}(own.first, parts[i].first), own.counted + parts[i].counted};
  tell(joined(own, count), count, ids, counted, error);
}

}  // namespace

template <class Rule>
void check_ids(Cuda on, Index count, const std::int32_t* ids, const Rule& rule, std::int32_t* counted,
               cuda::DeviceErrorSlot* error) {
  const Index blocks = count == 0 ? 1 : tiles_of(count, kIdsOfBlock);
  const auto queue = [&](Found* parts) {
    launch(on, "check_ids", check_ids_kernel<Rule>, {blocks, kThreads}, count, ids, rule, parts, counted,
           error);
  };
  if (blocks == 1) return queue(nullptr);
  const Scratch<Found> parts(on, blocks);
  queue(parts.data());
  launch(on, "check_ids", join_ids_kernel, {1, kThreads}, count, ids, blocks, parts.data(), counted, error);
}

template check_ids_on<Cuda, IdRange> check_ids<IdRange>;
template check_ids_on<Cuda, RisingStarts> check_ids<RisingStarts>;
template check_ids_on<Cuda, LengthsWithin> check_ids<LengthsWithin>;

}  // namespace tapeformer::kernels
