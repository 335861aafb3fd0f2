#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/paths.h>
#include <tapeformer/autograd/kernels/cuda/attention/sparse_mma.h>
#include <tapeformer/autograd/kernels/cuda/pack.h>
#include <tapeformer/autograd/kernels/cuda/tensor_core.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

// A block has a query and 64 of its keys at a time, gathered in shared memory: 16 for each warp. Factors are
// tiles of bf16 whose rows lie an odd number of 16 bytes apart, so that eight rows are in different banks.

namespace tapeformer::kernels {

constexpr int kTileKeys = 64, kTileHeads = 16, kTileWarps = kTileKeys / 16, kTileThreads = kTileWarps * kWarp;
constexpr int kMostHeadTiles = 4;  // whose weights a warp holds for the gradients of its keys
constexpr Index kMostWidth = 576;
constexpr int kWeightPitch = kTileKeys + 8;

__host__ __device__ constexpr int pitch_of(Index width) { return static_cast<int>(width) + 8; }

/// products = 16 rows times 16 transposed ones, at rows_by_16 and rows_by_8.
__device__ inline void multiply(float (&products)[2][4], const BFloat16* rows, const BFloat16* transposed,
                                Index width) {
  for (int i = 0; i < 8; ++i) products[i / 4][i % 4] = 0;
#pragma unroll 2
  for (int at = 0; at < width; at += 16) {
    unsigned a[4], b[4];
    load_matrix_x4(a, rows + at);
    load_matrix_x4(b, transposed + at);
    mma_bf16(products[0], a, b[0], b[1]);
    mma_bf16(products[1], a, b[2], b[3]);
  }
}
/// sums += a times the 16 x 16 numbers of `rows`, at rows_by_16.
__device__ inline void add_product(float (&sums)[2][4], const unsigned (&a)[4], const BFloat16* rows) {
  unsigned b[4];
  load_matrix_x4_transposed(b, rows);
  mma_bf16(sums[0], a, b[0], b[1]);
  mma_bf16(sums[1], a, b[2], b[3]);
}

/// Begins to copy rows to a tile; row(i) is nullptr for zeros. The caller commits.
template <class F>
__device__ void load_rows(BFloat16* tile, int rows, Index width, const BFloat16* any, const F& row) {
  for (int i = own_warp(); i < rows; i += kTileWarps) {
    const BFloat16* const from = row(i);
    for (int at = own_lane() * 8; at < width; at += kWarp * 8)
      copy_async_16(tile + i * pitch_of(width) + at, from != nullptr ? from + at : any, from != nullptr);
  }
}

/// A query, its keys and some of its heads, on which a block works, and the block's memory.
struct SparseBlock {
  KeysOfQueries keys;
  SparseSizes s;
  const BFloat16 *query, *latents, *dy;
  Index row;
  int head, count;  // the first head, and the number of keys
  int buffers;      // of a tile of keys each
  BFloat16 *queries, *of_dy, *tiles, *weights;
  float* parts;

  __device__ SparseBlock(const SparseOperands& x, Index of_row, int first_head, int heads, int tile_buffers)
      : keys(x.keys),
        s(x.sizes),
        query(x.query),
        latents(x.latents),
        dy(x.dy),
        row(of_row),
        head(first_head),
        count(static_cast<int>(x.keys.count(of_row))),
        buffers(tile_buffers),
        queries(dynamic_shared<BFloat16>()),
        of_dy(queries + heads * pitch_of(s.width)),
        tiles(of_dy + (dy != nullptr ? heads * pitch_of(s.value_width) : 0)),
        weights(tiles + buffers * kTileKeys * pitch_of(s.width)),
        parts(reinterpret_cast<float*>(weights + kTileHeads * kWeightPitch)) {}
  static std::size_t bytes(const SparseSizes& s, bool has_dy, int heads, int buffers) {
    const int numbers = (heads + buffers * kTileKeys) * pitch_of(s.width) +
                        (has_dy ? heads * pitch_of(s.value_width) : 0) + kTileHeads * kWeightPitch;
    return static_cast<std::size_t>(numbers) * sizeof(BFloat16) + 3 * kTileWarps * kTileHeads * sizeof(float);
  }

  __device__ void load_heads(int heads) const {
    const auto load = [&](BFloat16* to, const BFloat16* from, Index width) {
      load_rows(to, heads, width, from, [&](int i) {
        return head + i < s.heads ? from + (row * s.heads + head + i) * width : nullptr;
      });
    };
    load(queries, query, s.width);
    if (dy != nullptr) load(of_dy, dy, s.value_width);
  }
  __device__ BFloat16* tile(int n) const { return tiles + n % buffers * kTileKeys * pitch_of(s.width); }
  __device__ void load_keys(int n) const {
    load_rows(tile(n), kTileKeys, s.width, latents, [&](int i) {
      const int key = n * kTileKeys + i;
      return key < count ? latents + keys.of(row)[key] * s.width : nullptr;
    });
  }
  /// Calls each(n) for the tiles of keys, with the next one on its way.
  template <class F>
  __device__ void for_each_tile(const F& each) const {
    load_keys(0);
    copy_async_commit();
    for (int n = 0; n * kTileKeys < count; ++n) {
      if ((n + 1) * kTileKeys < count) load_keys(n + 1);
      copy_async_commit();
      copy_async_wait<1>();
      __syncthreads();
      each(n);
      __syncthreads();
    }
  }
  /// Products of the heads with the warp's keys: minus infinity beyond the last key.
  __device__ void find_scores(int n, float (&scores)[2][4]) const {
    const int pitch = pitch_of(s.width);
    multiply(scores, rows_by_16(queries, pitch), rows_by_8(tile(n) + own_warp() * 16 * pitch, pitch),
             s.width);
    for (int i = 0; i < 8; ++i)
      if (n * kTileKeys + own_warp() * 16 + i / 4 * 8 + own_lane() % 4 * 2 + i % 2 >= count)
        scores[i / 4][i % 4] = kMinusInfinity<float>;
  }
  /// Products of dy with the values of the warp's keys.
  __device__ void find_dweights(int n, float (&products)[2][4]) const {
    multiply(products, rows_by_16(of_dy, pitch_of(s.value_width)),
             rows_by_8(tile(n) + own_warp() * 16 * pitch_of(s.width), pitch_of(s.width)), s.value_width);
  }
  /// Calls each(one of the lane's two keys, head, product) for products of the warp's keys with the heads
  /// from `head` on, which it moves to their end.
  template <class F>
  __device__ void for_each_product(int n, const F& each) {
    const BFloat16* const own_keys =
        rows_by_16(tile(n) + own_warp() * 16 * pitch_of(s.width), pitch_of(s.width));
    load_keys(n);
    for (; head < s.heads; head += kTileHeads) {
      load_heads(kTileHeads);
      copy_async_commit();
      copy_async_wait<0>();
      __syncthreads();
      float products[2][4];
      multiply(products, own_keys, rows_by_8(queries, pitch_of(s.width)), s.width);
      for (int i = 0; i < 8; ++i)
        if (const int own = head + i / 4 * 8 + own_lane() % 4 * 2 + i % 2; own < s.heads)
          each(i / 2 % 2, own, products[i / 4][i % 4]);
      __syncthreads();
    }
  }
  /// Calls put(place, whether it has a key, sum) for the sums over heads of each of the warp's keys, at
  /// places of [B, T, K].
  template <class F>
  __device__ void put_sums(int n, const float (&sums)[2], const F& put) const {
    for (int h = 0; h < 2; ++h) {
      const float sum = warp_sum<4>(sums[h]);
      const int key = n * kTileKeys + own_warp() * 16 + own_lane() / 4 + 8 * h;
      if (own_lane() % 4 == 0 && key < keys.top_k) put(row * keys.top_k + key, key < count, sum);
    }
  }
  /// Writes what the heads from `head` on, which it moves to their end, add to the gradients of the keys:
  /// parts [rows, K, N] of the rows from `first` on. find(key, head, product, dweight) replaces a product by
  /// the factor of dy (if any), and dweight by that of the query.
  template <int kHeadTiles, bool kHasDy, class F>
  __device__ void put_pair_gradients(int n, Index first, BFloat16* to_parts, const F& find) {
    const int first_key = n * kTileKeys + own_warp() * 16, pitch = pitch_of(s.width),
              dy_pitch = pitch_of(s.value_width);
    load_keys(n);
    for (; head < s.heads; head += kHeadTiles * kTileHeads) {
      load_heads(kHeadTiles * kTileHeads);
      copy_async_commit();
      copy_async_wait<0>();
      __syncthreads();
      const BFloat16* const own_keys = rows_by_16(tile(n) + own_warp() * 16 * pitch, pitch);
      unsigned of_dy_tiles[kHeadTiles][4], of_queries[kHeadTiles][4];
#pragma unroll
      for (int tile = 0; tile < kHeadTiles; ++tile) {
        float products[2][4], dweights[2][4] = {};
        multiply(products, own_keys, rows_by_8(queries + tile * kTileHeads * pitch, pitch), s.width);
        if constexpr (kHasDy)
          multiply(dweights, own_keys, rows_by_8(of_dy + tile * kTileHeads * dy_pitch, dy_pitch),
                   s.value_width);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int own = head + tile * kTileHeads + i / 4 * 8 + own_lane() % 4 * 2 + i % 2,
                    key = first_key + own_lane() / 4 + i / 2 % 2 * 8;
          float &product = products[i / 4][i % 4], &dweight = dweights[i / 4][i % 4];
          if (own < s.heads && key < count)
            find(key, own, product, dweight);
          else
            product = dweight = 0;
        }
        for (int i = 0; i < 4; ++i) {
          const int at = i % 2 * 2;
          of_dy_tiles[tile][i] = pack_bf16(products[i / 2][at], products[i / 2][at + 1]);
          of_queries[tile][i] = pack_bf16(dweights[i / 2][at], dweights[i / 2][at + 1]);
        }
      }
      for (int column = 0; column < s.width; column += 16) {
        float sums[2][4] = {};
#pragma unroll
        for (int tile = 0; tile < kHeadTiles; ++tile) {
          add_product(sums, of_queries[tile],
                      rows_by_16(queries + tile * kTileHeads * pitch, pitch) + column);
          if (kHasDy && column < s.value_width)
            add_product(sums, of_dy_tiles[tile],
                        rows_by_16(of_dy + tile * kTileHeads * dy_pitch, dy_pitch) + column);
        }
        for (int i = 0; i < 4; ++i) {
          const int key = first_key + own_lane() / 4 + i % 2 * 8;
          if (key >= count) continue;
          BFloat16* const row_of_key = to_parts + ((row - first) * keys.top_k + key) * s.width;
          auto* const to = reinterpret_cast<unsigned*>(row_of_key + column + i / 2 * 8 + own_lane() % 4 * 2);
          float low = sums[i / 2][i % 2 * 2], high = sums[i / 2][i % 2 * 2 + 1];
          if (head > 0) low += low_bf16(*to), high += high_bf16(*to);
          *to = pack_bf16(low, high);
        }
      }
      __syncthreads();
    }
  }
  /// Stores a pair of a row's weights, for all warps to read: that of this lane's row g + 8 half.
  __device__ void put_weights(int fragment, int half, float first, float second) const {
    const int at = (own_lane() / 4 + 8 * half) * kWeightPitch + own_warp() * 16 + fragment * 8;
    *reinterpret_cast<unsigned*>(weights + at + own_lane() % 4 * 2) = pack_bf16(first, second);
  }
  /// sums += weights times the tile: of the columns' pairs of eight, every fourth is the warp's.
  template <int kPairs>
  __device__ void add_weighted(int n, Index width, float (&sums)[kPairs][2][4]) const {
    for (int k = 0; k < kTileKeys / 16; ++k) {
      unsigned a[4];
      load_matrix_x4(a, rows_by_16(weights, kWeightPitch) + k * 16);
      const BFloat16* const rows = rows_by_16(tile(n) + k * 16 * pitch_of(s.width), pitch_of(s.width));
#pragma unroll
      for (int i = 0; i < kPairs; ++i)
        if (const int at = (own_warp() + i * kTileWarps) * 16; at < width) add_product(sums[i], a, rows + at);
    }
  }
  /// Calls put(number of the head among all, half, column, value, its neighbour) for the sums; the head is
  /// the block's g + 8 half.
  template <int kPairs, class F>
  __device__ void for_each_sum(Index width, const float (&sums)[kPairs][2][4], const F& put) const {
#pragma unroll
    for (int i = 0; i < kPairs * 4; ++i) {
      const int fragment = i / 2 % 2, half = i % 2, own = head + own_lane() / 4 + 8 * half,
                column = (own_warp() + i / 4 * kTileWarps) * 16 + fragment * 8 + own_lane() % 4 * 2;
      const float* const pair = sums[i / 4][fragment] + 2 * half;
      if (column < width && own < s.heads) put(row * s.heads + own, half, column, pair[0], pair[1]);
    }
  }
};

/// Calls use(the number of pairs of fragments that a warp needs for sums of `width` columns).
template <class Use>
void with_pairs(Index width, const Use& use) {
  if (width <= 192)
    use(std::integral_constant<int, 3>());
  else
    use(std::integral_constant<int, 9>());
}

/// Calls use(the number of tiles of heads that the gradients of keys take at a time).
template <class Use>
void with_head_tiles(Index heads, const Use& use) {
  if (heads <= kTileHeads)
    use(std::integral_constant<int, 1>());
  else
    use(std::integral_constant<int, kMostHeadTiles>());
}

/// Whether these kernels take the sizes, and the device has what they need.
inline bool suits_tiles(Cuda on, const SparseOperands& x) {
  const SparseSizes& s = x.sizes;
  const int most_heads = s.heads <= kTileHeads ? kTileHeads : kMostHeadTiles * kTileHeads;
  return keeps_order(s.scale) && s.width % 16 == 0 && s.value_width % 16 == 0 && s.width <= kMostWidth &&
         are_packed(x.query, x.latents, x.dy) &&
         std::max(SparseBlock::bytes(s, x.dy != nullptr, kTileHeads, 2),
                  SparseBlock::bytes(s, x.dy != nullptr, most_heads, 1)) <= shared_room(on);
}

/// A launch of SparseBlocks, each with memory for `heads` rows of queries and `buffers` tiles of keys.
inline Grid grid_of(Index blocks, const SparseOperands& x, int heads, int buffers) {
  return {blocks, kTileThreads, SparseBlock::bytes(x.sizes, x.dy != nullptr, heads, buffers)};
}

}  // namespace tapeformer::kernels
