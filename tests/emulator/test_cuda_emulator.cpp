#include <cuda_emulator.h>
#include <doctest/doctest.h>
#include <tapeformer/tests/emulator/in_order.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

using namespace tapeformer;
using emulator::launch;

namespace {

constexpr unsigned kAll = 0xffffffffu;

/// Sums rows by shuffles, static and dynamic shared memory;
/// warps wait for each other only if `careful`.
__global__ void row_sums(const int* x, int* y, int n, bool careful) {
  __shared__ int of_warps[32];
  int* whole = kernels::dynamic_shared<int>();
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  int sum = 0;
  for (int i = thread; i < n; i += threads) sum += x[static_cast<int>(blockIdx.x) * n + i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(kAll, sum, offset);
  if (thread % warpSize == 0) of_warps[thread / warpSize] = sum;
  if (careful) __syncthreads();
  if (thread == 0) whole[0] = std::accumulate(of_warps, of_warps + threads / warpSize, 0);
  __syncthreads();
  if (thread == 1) y[blockIdx.x] = whole[0];
}

/// Whether the sums of three rows of 1, 2, 3, ... come out right in the order of `seed`.
bool sums_are_right(std::uint64_t seed, bool careful) {
  const InOrder order(seed);
  constexpr int kRows = 3, kLength = 300;
  std::vector<int> x(kRows * kLength), y(kRows);
  std::iota(x.begin(), x.end(), 1);
  launch("row_sums", kRows, 128, sizeof(int), [&] { row_sums(x.data(), y.data(), kLength, careful); });
  bool right = true;
  for (int row = 0; row < kRows; ++row)
    right = right && y[row] == (2 * kLength * row + kLength + 1) * kLength / 2;
  return right;
}

/// The result of each of 32 lanes, whose inputs are 100 plus their numbers.
std::vector<int> shuffled(const std::function<int(int)>& shuffle) {
  std::vector<int> got(32);
  launch("shuffle", 1, 32, 0, [&] { got[threadIdx.x] = shuffle(100 + static_cast<int>(threadIdx.x)); });
  return got;
}

struct Counted {
  explicit Counted(int& count_) : count(count_) { ++count; }
  ~Counted() { --count; }
  Counted(const Counted&) = delete;
  int& count;
};

}  // namespace

TEST_CASE("dynamic shared memory starts as NaNs in each block and is aligned to 16 bytes") {
  int nans = 0;
  launch("fresh", 3, 1, 64, [&] {
    float* shared = kernels::dynamic_shared<float>();
    CHECK(reinterpret_cast<std::uintptr_t>(shared) % 16 == 0);
    for (int i = 0; i < 16; ++i) nans += std::isnan(shared[i]);
    for (int i = 0; i < 16; ++i) shared[i] = 0;
  });
  CHECK(nans == 48);
}

TEST_CASE("barriers tell whether any thread voted yes") {
  for (const int yes : {0, 1, 40, 64}) {
    std::vector<int> any(64);
    launch("votes", 1, 64, 0,
           [&] { any[threadIdx.x] = __syncthreads_or(static_cast<int>(threadIdx.x) < yes ? 4 : 0); });
    CHECK(any == std::vector<int>(64, yes > 0));
  }
}

TEST_CASE("shuffles within segments of each width") {
  for (const int width : {1, 2, 4, 8, 16, 32}) {
    for (const int by : {0, 1, 3, 7, 16, 31}) {
      const auto any = shuffled([&](int own) { return __shfl_sync(kAll, own, by, width); });
      const auto flipped = shuffled([&](int own) { return __shfl_xor_sync(kAll, own, by, width); });
      for (int lane = 0; lane < 32; ++lane) {
        const int begin = lane / width * width;
        CHECK(any[lane] == 100 + begin + by % width);
        CHECK(flipped[lane] == 100 + ((lane ^ by) < begin + width ? lane ^ by : lane));
      }
    }
  }
}

TEST_CASE("lanes of a part of a warp work together") {
  for (const std::uint64_t seed : {0, 1, 2}) {
    const InOrder order(seed);
    std::vector<int> got(40);
    launch("parts", 1, 40, 0, [&] {
      const int thread = static_cast<int>(threadIdx.x);
      if (thread >= 32)
        got[threadIdx.x] = __shfl_xor_sync(0xffu, thread, 7);
      else if (thread % 2 == 0)
        got[threadIdx.x] = __shfl_xor_sync(0x55555555u, thread, 2) + __shfl_sync(0x55555555u, thread, 4);
      else
        got[threadIdx.x] = __shfl_xor_sync(0xaaaaaaaau, thread, 2);
      if (thread < 32) got[threadIdx.x] += 1000 * __shfl_sync(kAll, thread, 31);
    });
    for (int thread = 0; thread < 40; ++thread) {
      const int even = thread % 2 == 0 ? 4 : 0;
      CHECK(got[thread] == (thread >= 32 ? thread ^ 7 : 31000 + (thread ^ 2) + even));
    }
  }
}

TEST_CASE("a value from a lane outside the mask is NaN") {
  float got = 0;
  launch("outside", 1, 32, 0, [&] {
    if (threadIdx.x == 3) got = __shfl_sync(1u << 3, 1.0f, 4);
  });
  CHECK(std::isnan(got));
}

TEST_CASE("votes of a warp") {
  launch("votes", 1, 64, 0, [&] {
    const unsigned lane = threadIdx.x % 32;
    CHECK(__ballot_sync(kAll, lane % 3 == 0) == 0x49249249u);
    CHECK(__all_sync(kAll, lane < 32) == 1);
    CHECK(__all_sync(kAll, lane < 31) == 0);
    if (lane < 8) {
      CHECK(__ballot_sync(0xffu, lane > 3) == 0xf0u);
      CHECK(__all_sync(0xffu, lane < 8) == 1);
    }
  });
}

TEST_CASE("a correct kernel gives the same result in every order, a wrong one does not") {
  int right = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CHECK(sums_are_right(seed, true));
    right += sums_are_right(seed, false);
  }
  CHECK(right < 20);
}

TEST_CASE("a seed gives its own order of threads and of blocks, always the same") {
  const auto order_of = [](std::uint64_t seed, unsigned blocks, unsigned threads) {
    const InOrder order(seed);
    std::vector<unsigned> seen;
    launch("order", blocks, threads, 0, [&] {
      __syncthreads();
      seen.push_back(blockIdx.x * threads + threadIdx.x);
    });
    return seen;
  };
  std::vector<unsigned> ascending(64);
  std::iota(ascending.begin(), ascending.end(), 0u);
  for (const unsigned blocks : {1u, 64u}) {
    const auto order = [&](std::uint64_t seed) { return order_of(seed, blocks, 64 / blocks); };
    CHECK(order(0) == ascending);
    CHECK(order(1) == order(1));
    CHECK(std::set<std::vector<unsigned>>{order(0), order(1), order(2)}.size() == 3);
    auto sorted = order(1);
    std::sort(sorted.begin(), sorted.end());
    CHECK(sorted == ascending);
  }
}

TEST_CASE("an exception in a kernel leaves the launch, and waiting threads are unwound") {
  int alive = 0;
  const auto kernel = [&] {
    const Counted counted(alive);
    if (threadIdx.x == 70) throw std::out_of_range("thread 70");
    __syncthreads();
  };
  CHECK_THROWS_WITH_AS(launch("throws", 2, 128, 0, kernel), "thread 70", std::out_of_range);
  CHECK(alive == 0);
  CHECK(sums_are_right(0, true));
}

TEST_CASE("host threads launch side by side") {
  bool right[2] = {false, false};
  const auto many = [](bool& all) {
    all = true;
    for (int i = 0; i < 20; ++i) all = all && sums_are_right(0, true);
  };
  std::thread other(many, std::ref(right[0]));
  many(right[1]);
  other.join();
  CHECK((right[0] && right[1]));
}

TEST_CASE("min and max convert operands as a sum does, and prefer a number to NaN; products are not fused") {
  CHECK(::max(-1, 1u) == 0xffffffffu);
  CHECK(::min(2, 1.5) == 1.5);
  CHECK(::max(NAN, 1.0f) == 1.0f);
  CHECK(::min(1.0, double{NAN}) == 1.0);
  volatile float above_one = 1 + std::numeric_limits<float>::epsilon();  // not known to the compiler
  const float a = above_one;
  CHECK(__fmul_rn(a, a) - (1 + 2 * std::numeric_limits<float>::epsilon()) == 0);
}

TEST_CASE("threads have room for arrays, and may meet as often as they like") {
  long sum = 0;
  launch("long", 1, 32, 0, [&] {
    volatile char room[24 * 1024];
    for (std::size_t i = 0; i < sizeof room; i += 1024) room[i] = static_cast<char>(threadIdx.x);
    int value = 1;
    for (int i = 0; i < 3000; ++i) value = __shfl_xor_sync(kAll, value, 1 + i % 31);
    if (room[1024] == static_cast<char>(threadIdx.x)) sum += value;
  });
  CHECK(sum == 32);
}
