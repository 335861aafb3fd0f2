#pragma once

#include <tapeformer/autograd/kernels/cuda/hopper.h>

#include <stdexcept>
#include <vector>

/// The data that the emulator's own test kernels copy and multiply.
namespace tapeformer::hopper_tests {

using namespace kernels;

inline float number(int i) { return static_cast<float>(i * 37 % 61 - 30); }

/// Rows of a tensor [batch][row][head][column], some of which the copy engine sees.
struct Source {
  Source(int rows_, int columns_) : rows(rows_), columns(columns_) {
    for (int i = 0; i < 2 * rows * kHeads * columns; ++i) data.emplace_back(number(i));
    const std::uint64_t sizes[] = {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows),
                                   kHeads, 2};
    const auto row = static_cast<std::uint64_t>(columns) * 2 * kHeads;
    const std::uint64_t strides[] = {row, row / kHeads, row * static_cast<std::uint64_t>(rows)};
    const std::uint32_t box[] = {64, kBoxRows, 1, 1}, ones[] = {1, 1, 1, 1};
    if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, data.data(), sizes, strides, box,
                               ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
      throw std::logic_error("a map that the emulator takes");
  }
  float at(int batch, int row, int head, int column) const {
    return static_cast<float>(
        data[static_cast<std::size_t>(((batch * rows + row) * kHeads + head) * columns + column)]);
  }

  static constexpr int kHeads = 3, kBoxRows = 64;
  static constexpr int kBoxBytes = kBoxRows * kBoxRowBytes;
  int rows, columns;
  std::vector<BFloat16> data;
  CUtensorMap map;
};

/// Shared memory of the kernels below: tiles that begin where the swizzle does, then barriers.
constexpr int kTileBytes = 4 * Source::kBoxBytes, kSharedBytes = kSwizzleBytes + kTileBytes + 64;
inline char* tile() {
  char* shared = dynamic_shared<char>();
  return shared + (kSwizzleBytes - shared_address(shared) % kSwizzleBytes) % kSwizzleBytes;
}
inline std::uint64_t* barrier() { return reinterpret_cast<std::uint64_t*>(tile() + kTileBytes); }

inline void make_barrier(int arrivals) {
  if (threadIdx.x == 0) {
    init_barrier(barrier(), arrivals);
    publish_barriers();
  }
  __syncthreads();
}

/// The second of two barriers.
inline std::uint64_t* other_barrier() { return barrier() + 1; }
inline void make_barriers(int arrivals, int other_arrivals) {
  if (threadIdx.x == 0) init_barrier(other_barrier(), other_arrivals);
  make_barrier(arrivals);
}

/// A box at the beginning of tile number `at`, asked for by the thread that calls.
inline void load_tile(const CUtensorMap& map, int at = 0) {
  arrive_expecting(barrier(), Source::kBoxBytes);
  load_box(tile() + at * Source::kBoxBytes, &map, barrier(), 0, 0, 0, 0);
}
/// d = a [64 x 16] of tile 1 times b [16 x 64] of tile 0; one group.
inline void multiply(float (&d)[32]) {
  wgmma_fence();
  wgmma(d, matrix_at(tile() + Source::kBoxBytes, 16, 1024), matrix_at(tile(), 16, 1024), false);
  wgmma_commit();
}

}  // namespace tapeformer::hopper_tests
