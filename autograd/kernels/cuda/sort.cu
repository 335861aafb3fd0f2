#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/cuda/sort.h>

namespace tapeformer::kernels {
namespace {

constexpr int kWarps = kBlock / kWarp;
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
static_assert(kDigits == kBlock, "a thread for each digit");
constexpr Index kMostSummed = 64;                     // blocks whose counts each block adds by itself
constexpr int kRounds = 8, kTile = kBlock * kRounds;  // a block's keys; a warp's are neighbours

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

/// The index of this lane's key of a round.
__device__ Index index_of(int round) {
  return Index{blockIdx.x} * kTile + (own_warp() * kRounds + round) * kWarp + own_lane();
}
/// A thread's keys, or positions: one of each round, loaded together.
struct Rounds {
  std::int32_t of[kRounds];
};
__device__ Rounds load_keys(const Pass& pass) {
  Rounds keys;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const Index i = index_of(round);
    const std::int32_t key = i < pass.count ? pass.keys[i] : pass.end;
    keys.of[round] = key < 0 || key > pass.end ? pass.end : key;
  }
  return keys;
}

/// Calls use(round, digit, lanes with the same digit) round by round; lanes without a key are not among the
/// named lanes.
template <class Use>
__device__ void for_each_round(const Pass& pass, const Rounds& keys, Use&& use) {
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int digit = static_cast<int>(static_cast<unsigned>(keys.of[round]) >> pass.shift) % kDigits;
    unsigned same = __ballot_sync(kAllLanes, index_of(round) < pass.count);
#pragma unroll
    for (int bit = 0; bit < kDigitBits; ++bit) {
      const bool is_set = (digit >> bit & 1) != 0;
      const unsigned votes = __ballot_sync(kAllLanes, is_set);
      same &= is_set ? votes : ~votes;
    }
    use(round, digit, same);
  }
}

/// Fills the tallies and returns to thread d the number of keys of digit d in the block.
__device__ unsigned count_digits(const Pass& pass, const Rounds& keys, Tallies& tallies) {
  const int lane = own_lane(), warp = own_warp();
  for (int other = 0; other < kWarps; ++other) tallies[other][threadIdx.x] = 0;
  __syncthreads();
  for_each_round(pass, keys, [&](int round, int digit, unsigned same) {
    if (index_of(round) < pass.count && __ffs(static_cast<int>(same)) - 1 == lane)
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
  counts[blockIdx.x * kDigits + threadIdx.x] = count_digits(pass, load_keys(pass), tallies);
}

/// Replaces the counts [blocks, kDigits] of many blocks by their sums over the blocks before, and writes
/// those over all. A block has 32 digits, and each of its warps a part of the counts.
__global__ void add_counts_kernel(Index blocks, unsigned* counts, unsigned* totals) {
  __shared__ unsigned sums[kWarps][kWarp];
  const int digit = static_cast<int>(blockIdx.x) * kWarp + own_lane(), warp = own_warp();
  const Index from = blocks * warp / kWarps, to = blocks * (warp + 1) / kWarps;
  unsigned sum = 0;
#pragma unroll 8
  for (Index block = from; block < to; ++block) sum += counts[block * kDigits + digit];
  sums[warp][own_lane()] = sum;
  __syncthreads();
  unsigned before = 0;
  for (int other = 0; other < warp; ++other) before += sums[other][own_lane()];
  if (warp == kWarps - 1) totals[digit] = before + sum;
#pragma unroll 8
  for (Index block = from; block < to; ++block) {
    const unsigned own = counts[block * kDigits + digit];
    counts[block * kDigits + digit] = before;
    before += own;
  }
}

/// Returns to thread d the position of this block's first key of digit d, from counts [blocks, kDigits] or,
/// with totals, from their sums.
__device__ unsigned first_place(const unsigned* counts, const unsigned* totals) {
  if (totals != nullptr) return sum_before(totals[threadIdx.x]) + counts[blockIdx.x * kDigits + threadIdx.x];
  unsigned total = 0, before = 0;
#pragma unroll 16
  for (unsigned block = 0; block < gridDim.x; ++block) {
    const unsigned own = counts[block * kDigits + threadIdx.x];
    total += own;
    before += block < blockIdx.x ? own : 0;
  }
  return sum_before(total) + before;
}

/// `counts` is nullptr if there is one block, and `totals` unless there are many.
__global__ void move_keys_kernel(Pass pass, const unsigned* counts, const unsigned* totals,
                                 std::int32_t* keys, std::int32_t* positions) {
  __shared__ Tallies tallies;
  const int lane = own_lane(), warp = own_warp();
  const Rounds own_keys = load_keys(pass);
  Rounds own_positions;
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const Index i = index_of(round);
    own_positions.of[round] =
        pass.positions != nullptr && i < pass.count ? pass.positions[i] : static_cast<std::int32_t>(i);
  }
  const unsigned total = count_digits(pass, own_keys, tallies);
  unsigned next = counts != nullptr ? first_place(counts, totals) : sum_before(total);
  for (int other = 0; other < kWarps; ++other) {
    const unsigned own = tallies[other][threadIdx.x];
    tallies[other][threadIdx.x] = next;
    next += own;
  }
  __syncthreads();
  for_each_round(pass, own_keys, [&](int round, int digit, unsigned same) {
    const bool is_there = index_of(round) < pass.count;
    const unsigned before = same & ((1u << lane) - 1);
    const unsigned place = is_there ? tallies[warp][digit] + static_cast<unsigned>(__popc(before)) : 0;
    __syncwarp();
    if (is_there && before == 0) tallies[warp][digit] += static_cast<unsigned>(__popc(same));
    __syncwarp();
    if (is_there) {
      keys[place] = own_keys.of[round];
      positions[place] = own_positions.of[round];
    }
  });
}

}  // namespace

SortedKeys::SortedKeys(Cuda on, Index count, Index end, const std::int32_t* keys)
    : keys_{{on, count}, {on, count}}, positions_{{on, count}, {on, count}} {
  const Index blocks = tiles_of(count, kTile);
  const bool are_many = blocks > kMostSummed;
  const Scratch<unsigned> counts(on, blocks * kDigits), totals(on, are_many ? kDigits : 0);
  Pass pass{count, static_cast<std::int32_t>(end), 0, keys, nullptr};
  do {
    if (blocks > 1) launch(on, "count_digits", count_digits_kernel, blocks, pass, counts.data());
    if (are_many)
      launch(on, "add_counts", add_counts_kernel, kDigits / kWarp, blocks, counts.data(), totals.data());
    last_ = 1 - last_;
    launch(on, "move_keys", move_keys_kernel, blocks, pass, blocks > 1 ? counts.data() : nullptr,
           are_many ? totals.data() : nullptr, keys_[last_].data(), positions_[last_].data());
    pass.keys = keys_[last_].data();
    pass.positions = positions_[last_].data();
    pass.shift += kDigitBits;
  } while (end >> pass.shift > 0);
}

}  // namespace tapeformer::kernels
