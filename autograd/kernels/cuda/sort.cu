#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/cuda/sort.h>

namespace tapeformer::kernels {
namespace {

constexpr int kWarps = kBlock / kWarp;
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
static_assert(kDigits == kBlock, "a thread for each digit");
constexpr int kRounds = 16, kTile = kBlock * kRounds;  // a block's keys; a warp's are neighbours

/// One stable pass by the digit at `shift`. The first has no positions yet.
struct Pass {
  Index count;
  std::int32_t end;
  int shift;
  const std::int32_t *keys, *positions;
};

/// The number of keys of each digit in each warp of a block, or the position of the warp's next key of that
/// digit.
using Tallies = unsigned[kWarps][kDigits];

/// Calls use(i, key, digit, lanes with the same digit) round by round; lanes with i >= count have no key, and
/// are not among the named lanes.
template <class Use>
__device__ void for_each_round(const Pass& pass, Use&& use) {
  const int lane = own_lane(), warp = own_warp();
  for (int round = 0; round < kRounds; ++round) {
    const Index i = Index{blockIdx.x} * kTile + (warp * kRounds + round) * kWarp + lane;
    std::int32_t key = i < pass.count ? pass.keys[i] : pass.end;
    if (key < 0 || key > pass.end) key = pass.end;
    const int digit = static_cast<int>(static_cast<unsigned>(key) >> pass.shift) % kDigits;
    unsigned same = __ballot_sync(kAllLanes, i < pass.count);
    for (int bit = 0; bit < kDigitBits; ++bit) {
      const bool is_set = (digit >> bit & 1) != 0;
      const unsigned votes = __ballot_sync(kAllLanes, is_set);
      same &= is_set ? votes : ~votes;
    }
    use(i, key, digit, same);
  }
}

/// Fills the tallies and returns to thread d the number of keys of digit d in the block.
__device__ unsigned count_digits(const Pass& pass, Tallies& tallies) {
  const int lane = own_lane(), warp = own_warp();
  for (int other = 0; other < kWarps; ++other) tallies[other][threadIdx.x] = 0;
  __syncthreads();
  for_each_round(pass, [&](Index i, std::int32_t, int digit, unsigned same) {
    if (i < pass.count && __ffs(static_cast<int>(same)) - 1 == lane)
      tallies[warp][digit] += static_cast<unsigned>(__popc(same));
    __syncwarp();
  });
  __syncthreads();
  unsigned total = 0;
  for (int other = 0; other < kWarps; ++other) total += tallies[other][threadIdx.x];
  return total;
}

/// The sum of the values of the threads before this one.
__device__ unsigned sum_before(unsigned value) {
  __shared__ unsigned sums[kBlock];
  const int thread = static_cast<int>(threadIdx.x);
  unsigned sum = value;
  sums[thread] = sum;
  for (int distance = 1; distance < kBlock; distance *= 2) {
    __syncthreads();
    const unsigned before = thread >= distance ? sums[thread - distance] : 0;
    __syncthreads();
    sum += before;
    sums[thread] = sum;
  }
  return sum - value;
}

__global__ void count_digits_kernel(Pass pass, unsigned* counts) {
  __shared__ Tallies tallies;
  counts[blockIdx.x * kDigits + threadIdx.x] = count_digits(pass, tallies);
}

/// One block turns counts [blocks, kDigits] into the positions of each block's first key of each digit.
__global__ void place_digits_kernel(Index blocks, unsigned* counts) {
  unsigned total = 0;
#pragma unroll 8
  for (Index block = 0; block < blocks; ++block) total += counts[block * kDigits + threadIdx.x];
  unsigned next = sum_before(total);
  for (Index block = 0; block < blocks; ++block) {
    const unsigned own = counts[block * kDigits + threadIdx.x];
    counts[block * kDigits + threadIdx.x] = next;
    next += own;
  }
}

/// `places` is nullptr if there is one block, which computes them itself.
__global__ void move_keys_kernel(Pass pass, const unsigned* places, std::int32_t* keys,
                                 std::int32_t* positions) {
  __shared__ Tallies tallies;
  const int lane = own_lane(), warp = own_warp();
  const unsigned total = count_digits(pass, tallies);
  unsigned next = places != nullptr ? places[blockIdx.x * kDigits + threadIdx.x] : sum_before(total);
  for (int other = 0; other < kWarps; ++other) {
    const unsigned own = tallies[other][threadIdx.x];
    tallies[other][threadIdx.x] = next;
    next += own;
  }
  __syncthreads();
  for_each_round(pass, [&](Index i, std::int32_t key, int digit, unsigned same) {
    const bool is_there = i < pass.count;
    const unsigned before = same & ((1u << lane) - 1);
    const unsigned place = is_there ? tallies[warp][digit] + static_cast<unsigned>(__popc(before)) : 0;
    __syncwarp();
    if (is_there && before == 0) tallies[warp][digit] += static_cast<unsigned>(__popc(same));
    __syncwarp();
    if (is_there) {
      keys[place] = key;
      positions[place] = pass.positions != nullptr ? pass.positions[i] : static_cast<std::int32_t>(i);
    }
  });
}

}  // namespace

SortedKeys::SortedKeys(Cuda on, Index count, Index end, const std::int32_t* keys)
    : keys_{{on, count}, {on, count}}, positions_{{on, count}, {on, count}} {
  const Index blocks = tiles_of(count, kTile);
  const Scratch<unsigned> counts(on, blocks * kDigits);
  Pass pass{count, static_cast<std::int32_t>(end), 0, keys, nullptr};
  do {
    if (blocks > 1) {
      launch(on, "count_digits", count_digits_kernel, blocks, pass, counts.data());
      launch(on, "place_digits", place_digits_kernel, 1, blocks, counts.data());
    }
    last_ = 1 - last_;
    launch(on, "move_keys", move_keys_kernel, blocks, pass, blocks > 1 ? counts.data() : nullptr,
           keys_[last_].data(), positions_[last_].data());
    pass.keys = keys_[last_].data();
    pass.positions = positions_[last_].data();
    pass.shift += kDigitBits;
  } while (end >> pass.shift > 0);
}

}  // namespace tapeformer::kernels
