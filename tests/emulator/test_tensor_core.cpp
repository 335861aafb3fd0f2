#include <cuda_emulator_tensor_core.h>
#include <doctest/doctest.h>

#include <vector>

using namespace tapeformer;
using emulator::launch;

namespace {

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

TEST_CASE("rows of tensor cores and of asynchronous copies must be aligned") {
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
