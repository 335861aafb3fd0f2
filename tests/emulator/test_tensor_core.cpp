#include <cuda_emulator_tensor_core.h>
#include <doctest/doctest.h>
#include <tapeformer/tests/emulator/in_order.h>

#include <vector>

using namespace tapeformer;
using emulator::launch;

namespace {

BFloat16 small_number(int i) { return BFloat16(static_cast<float>(i * 7 % 23 - 11) / 8); }

/// A warp multiplies a [16, 16] and b [16, 8], both row-major in shared memory, and adds c.
__global__ void multiply(const BFloat16* a, const BFloat16* b, float* c, bool by_copies) {
  BFloat16* shared = kernels::dynamic_shared<BFloat16>();
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  if (by_copies) {
    for (int i = lane; i < 32; i += 32) kernels::copy_async_16(shared + 8 * i, a + 8 * i, true);
    kernels::copy_async_commit();
    for (int i = lane; i < 16; i += 32) kernels::copy_async_16(shared + 256 + 8 * i, b + 8 * i, true);
    kernels::copy_async_commit();
    kernels::copy_async_wait<0>();
  } else {
    for (int i = lane; i < 256; i += 32) shared[i] = a[i];
    for (int i = lane; i < 128; i += 32) shared[256 + i] = b[i];
  }
  __syncwarp();
  unsigned of_a[4], of_b[4];
  kernels::load_matrix_x4(of_a, shared + lane % 16 * 16 + lane / 16 * 8);
  kernels::load_matrix_x4_transposed(of_b, shared + 256 + lane % 16 * 8);
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  kernels::mma_bf16(sums, of_a, of_b[0], of_b[1]);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

/// Copies `from` in two groups; reads when all but `Pending` of them must be there.
template <int Pending>
__global__ void copy_and_read(const int* from, int* seen) {
  int* shared = kernels::dynamic_shared<int>();
  for (int i = 0; i < 8; ++i) shared[i] = -1;
  kernels::copy_async_16(shared, from, true);
  kernels::copy_async_commit();
  kernels::copy_async_16(shared + 4, from + 4, false);
  kernels::copy_async_commit();
  kernels::copy_async_wait<Pending>();
  for (int i = 0; i < 8; ++i) seen[i] = shared[i];
}

template <int Pending>
std::vector<int> seen_with() {
  alignas(16) static const int from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<int> seen(8);
  launch("copy", 1, 1, 32, [&] { copy_and_read<Pending>(from, seen.data()); });
  return seen;
}

}  // namespace

TEST_CASE("a warp's tensor core multiplies what ldmatrix read") {
  alignas(16) BFloat16 a[256], b[128];
  for (int i = 0; i < 256; ++i) a[i] = small_number(i);
  for (int i = 0; i < 128; ++i) b[i] = small_number(3 * i + 1);
  for (const bool by_copies : {false, true}) {
    for (const std::uint64_t order : {0, 5}) {
      const InOrder in_order(order);
      std::vector<float> c(128, 0.5f);
      launch("multiply", 1, 32, 768, [&] { multiply(a, b, c.data(), by_copies); });
      for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 8; ++j) {
          float sum = 0.5f;
          for (int k = 0; k < 16; ++k)
            sum += static_cast<float>(a[i * 16 + k]) * static_cast<float>(b[k * 8 + j]);
          CHECK(c[i * 8 + j] == doctest::Approx(sum));
        }
      }
    }
  }
}

TEST_CASE("asynchronous copies are there after the wait for their group, and no earlier") {
  CHECK(seen_with<0>() == std::vector<int>{1, 2, 3, 4, 0, 0, 0, 0});
  CHECK(seen_with<1>() == std::vector<int>{1, 2, 3, 4, -1, -1, -1, -1});
  CHECK(seen_with<2>() == std::vector<int>{-1, -1, -1, -1, -1, -1, -1, -1});
}

TEST_CASE("copies without a wait are discarded at the block's end") {
  alignas(16) const int from[4] = {1, 2, 3, 4};
  std::vector<int> seen(8);
  launch("leave", 1, 1, 32, [&] {
    kernels::copy_async_16(kernels::dynamic_shared<int>(), from, true);
    kernels::copy_async_commit();
  });
  launch("wait", 1, 1, 32, [&] {
    kernels::copy_async_wait<0>();
    seen[0] = kernels::dynamic_shared<int>()[0];
  });
  CHECK(seen[0] == -1);
}

TEST_CASE("tensor cores read, and copies write, aligned rows") {
  alignas(16) const int from[8] = {};
  CHECK_THROWS_WITH_AS(
      launch("copy", 1, 1, 32,
             [&] { kernels::copy_async_16(kernels::dynamic_shared<int>(), from + 1, true); }),
      doctest::Contains("where an asynchronous copy comes from"), emulator::Fault);
  CHECK_THROWS_WITH_AS(launch("load", 1, 32, 1024,
                              [&] {
                                unsigned r[4];
                                kernels::load_matrix_x4(r, kernels::dynamic_shared<char>() + 8);
                              }),
                       doctest::Contains("ldmatrix"), emulator::Fault);
}

TEST_CASE("numbers are packed in pairs, the first below") {
  CHECK(kernels::pack_bf16(1.0f, -2.0f) == 0xC0003F80u);
}
