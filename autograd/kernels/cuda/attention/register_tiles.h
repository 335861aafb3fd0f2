#pragma once

#include <tapeformer/autograd/kernels/cuda/pack.h>

namespace tapeformer::kernels {

/// The old values where a product goes: replaced, or added to, perhaps after a decay of their rows.
enum class OldSums { replaced, added, decayed };

/// Sums of R x 4 elements of a product in the registers of each thread, from packs of four: with `kDown` a is
/// [depth, rows], else [rows, depth]; with `kTransposed` b is [columns, depth], else [depth, columns]. With
/// `kTransposed` the columns of a thread are a quarter of all apart, so that neighbours read neighbouring
/// rows, and the sums replace what was there, whatever `old` says.
template <int R, bool kDown, bool kTransposed, class W>
__device__ void product_tiles(int rows, int columns, int depth, const W* a, int a_row, const W* b, int b_row,
                              W* c, int c_row, OldSums old, const W* decays) {
  const int across = (columns + 3) / 4, tiles = (rows + R - 1) / R * across;
#pragma unroll 1
  for (int tile = static_cast<int>(threadIdx.x); tile < tiles; tile += kBlock) {
    const int row = tile / across * R, column = tile % across;
    W sums[R][4] = {};
    const auto step = [&](int k, auto of) {
      constexpr int K = decltype(of)::value;
      W left[K][R], right[K][4];
      if constexpr (kDown) {
#pragma unroll
        for (int q = 0; q < K; ++q) {
          const Pack<W, R> x = load_pack<R>(a + (k + q) * a_row + row);
#pragma unroll
          for (int r = 0; r < R; ++r) left[q][r] = x.of[r];
        }
      } else {
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const Pack<W, K> x = load_pack<K>(a + min(row + r, rows - 1) * a_row + k);
#pragma unroll
          for (int q = 0; q < K; ++q) left[q][r] = x.of[q];
        }
      }
      if constexpr (kTransposed) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const Pack<W, K> x = load_pack<K>(b + min(column + n * across, columns - 1) * b_row + k);
#pragma unroll
          for (int q = 0; q < K; ++q) right[q][n] = x.of[q];
        }
      } else {
#pragma unroll
        for (int q = 0; q < K; ++q) {
          const Pack<W, 4> x = load_pack<4>(b + (k + q) * b_row + 4 * column);
#pragma unroll
          for (int n = 0; n < 4; ++n) right[q][n] = x.of[n];
        }
      }
#pragma unroll
      for (int q = 0; q < K; ++q) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
#pragma unroll
          for (int n = 0; n < 4; ++n) sums[r][n] += left[q][r] * right[q][n];
        }
      }
    };
    int k = 0;
#pragma unroll 2
    for (; k + 4 <= depth; k += 4) step(k, std::integral_constant<int, 4>{});
#pragma unroll 1
    for (; k < depth; ++k) step(k, std::integral_constant<int, 1>{});
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (row + r >= rows) continue;
      W* const to = c + (row + r) * c_row;
      if constexpr (kTransposed) {
#pragma unroll
        for (int n = 0; n < 4; ++n)
          if (column + n * across < columns) to[column + n * across] = sums[r][n];
      } else {
        Pack<W, 4> sum = old == OldSums::replaced ? Pack<W, 4>{} : load_pack<4>(to + 4 * column);
        const W decay = old == OldSums::decayed ? decays[row + r] : W(1);
#pragma unroll
        for (int n = 0; n < 4; ++n) sum.of[n] = decay * sum.of[n] + sums[r][n];
        store_pack(to + 4 * column, sum);
      }
    }
  }
}

}  // namespace tapeformer::kernels
