#pragma once

#include <tapeformer/autograd/kernels/cuda/device.h>

namespace tapeformer::kernels {

constexpr int kProductTile = 16;  // rows and columns of a block's tile
static_assert(kProductTile * kProductTile == kBlock);

/// This thread's row in the tile, or its column.
__device__ inline int row_in_tile() { return static_cast<int>(threadIdx.x) / kProductTile; }
__device__ inline int column_in_tile() { return static_cast<int>(threadIdx.x) % kProductTile; }

/// The sum over k in [from, to) of a(row, k) b(k, column), for this thread's place in a tile that a block
/// computes together. Rows and columns beyond a factor's end must give zeros.
template <class W, class A, class B>
__device__ W tile_product(Index from, Index to, A&& a, B&& b) {
  __shared__ W of_a[kProductTile][kProductTile + 1], of_b[kProductTile][kProductTile + 1];
  const int row = row_in_tile(), column = column_in_tile();
  W sum(0);
  for (; from < to; from += kProductTile) {
    of_a[row][column] = from + column < to ? a(row, from + column) : W(0);
    of_b[row][column] = from + row < to ? b(from + row, column) : W(0);
    __syncthreads();
    for (int i = 0; i < kProductTile; ++i) sum += of_a[row][i] * of_b[i][column];
    __syncthreads();
  }
  return sum;
}

}  // namespace tapeformer::kernels
