#include <tapeformer/autograd/kernels/cuda/attention/sparse_tiles.h>

namespace tapeformer::kernels {
namespace {

/// 64 chosen keys of a query in each block.
__global__ void __launch_bounds__(kTileThreads)
    index_scores_mma_kernel(SparseOperands x, Index key_tiles, const BFloat16* weights, float* scores) {
  SparseBlock own(x, blockIdx.x / key_tiles, 0, kTileHeads, 1);
  const BFloat16* const of_heads = weights + own.row * own.s.heads;
  float sums[2] = {0, 0};
  own.for_each_product(static_cast<int>(blockIdx.x % key_tiles), [&](int h, int head, float z) {
    if (z > 0) sums[h] += static_cast<float>(of_heads[head]) * z;
  });
  own.put_sums(static_cast<int>(blockIdx.x % key_tiles), sums, [&](Index place, bool is_key, float sum) {
    scores[place] = is_key ? static_cast<float>(own.s.scale) * sum : static_cast<float>(kNoScore);
  });
}

/// 16 heads of a query in each block.
template <int kPairs>
__global__ void __launch_bounds__(kTileThreads)
    index_query_gradients_mma_kernel(SparseOperands x, Index head_tiles, const BFloat16* weights,
                                     const float* dscores, Write<BFloat16> dquery, Write<BFloat16> dweights) {
  const SparseBlock own(x, blockIdx.x / head_tiles, static_cast<int>(blockIdx.x % head_tiles) * kTileHeads,
                        kTileHeads, 2);
  const int g = own_lane() / 4;
  const float* const slopes = dscores + own.row * own.keys.top_k;
  float z[2][4], sums[kPairs][2][4] = {}, of_weights[2] = {0, 0}, factors[2];
  for (int h = 0; h < 2; ++h) {
    const int head = own.head + g + 8 * h;
    factors[h] = head < own.s.heads ? static_cast<float>(weights[own.row * own.s.heads + head]) : 0.0f;
  }
  own.load_heads(kTileHeads);
  own.for_each_tile([&](int n) {
    own.find_scores(n, z);
    for (int i = 0; i < 4; ++i) {
      const int f = i / 2, h = i % 2, key = n * kTileKeys + own_warp() * 16 + f * 8 + own_lane() % 4 * 2;
      float of_pair[2];
      for (int k = 0; k < 2; ++k) {
        const float product = z[f][2 * h + k],
                    slope = product > 0 ? static_cast<float>(own.s.scale) * slopes[key + k] : 0.0f;
        if (product > 0) of_weights[h] = fmaf(slope, product, of_weights[h]);
        of_pair[k] = slope * factors[h];
      }
      own.put_weights(f, h, of_pair[0], of_pair[1]);
    }
    if (!dquery) return;
    __syncthreads();
    own.add_weighted(n, own.s.width, sums);
  });
  for (int h = 0; h < 2; ++h) {
    const float sum = warp_sum<4>(of_weights[h]);
    if (own_lane() % 4 == 0) own.parts[own_warp() * kTileHeads + g + 8 * h] = sum;
  }
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  if (dweights && thread < kTileHeads && own.head + thread < own.s.heads) {
    float sum = 0;
    for (int warp = 0; warp < kTileWarps; ++warp) sum += own.parts[warp * kTileHeads + thread];
    dweights.put(own.row * own.s.heads + own.head + thread, sum);
  }
  if (!dquery) return;
  own.for_each_sum(own.s.width, sums, [&](Index head, int, int column, float first, float second) {
    dquery.put(head * own.s.width + column, first);
    dquery.put(head * own.s.width + column + 1, second);
  });
}

/// 64 chosen keys of a query in each block.
template <int kHeadTiles>
__global__ void __launch_bounds__(kTileThreads)
    index_pair_gradients_mma_kernel(SparseOperands x, Index first, Index key_tiles, const BFloat16* weights,
                                    const float* dscores, BFloat16* parts) {
  SparseBlock own(x, first + blockIdx.x / key_tiles, 0, kHeadTiles * kTileHeads, 1);
  const int n = static_cast<int>(blockIdx.x % key_tiles);
  if (n * kTileKeys >= own.count) return;
  own.put_pair_gradients<kHeadTiles, false>(n, first, parts, [&](int key, int head, float& z, float& slope) {
    slope = z > 0 ? static_cast<float>(own.s.scale) * dscores[own.row * own.keys.top_k + key] *
                        static_cast<float>(weights[own.row * own.s.heads + head])
                  : 0.0f;
  });
}

constexpr int kRowsOfBlock = 32;
constexpr int kScorePitch = kTileKeys + 1;

/// A block has 64 neighbouring keys and 32 neighbouring queries, whose heads it takes 16 at a time: those of
/// several queries, or a part of one's.
__global__ void __launch_bounds__(kTileThreads)
    all_index_scores_mma_kernel(SparseOperands x, IndexSizes s, Index first, Index rows,
                                const BFloat16* weights, float* scores) {
  const KeysOfQueries& keys = x.keys;
  const int pitch = pitch_of(s.width), H = static_cast<int>(s.heads), together = min(H, kTileHeads),
            thread = static_cast<int>(threadIdx.x);
  BFloat16 *const of_keys = dynamic_shared<BFloat16>(), *const of_heads = of_keys + kTileKeys * pitch;
  auto* const products = reinterpret_cast<float*>(of_heads + 2 * kTileHeads * pitch);  // [16, 64]
  const Index first_key = Index{blockIdx.y} * kTileKeys;
  const Index begin = first + Index{blockIdx.x} * kRowsOfBlock, end = min(begin + kRowsOfBlock, first + rows);
  for (Index from = begin; from < end;) {  // of one sequence
    const Index sequence = from / keys.queries, to = min(end, (sequence + 1) * keys.queries);
    int least_key = s.from == nullptr ? 0 : static_cast<int>(keys.keys),
        last_key = s.to == nullptr ? static_cast<int>(keys.keys) : 0;
    for (Index row = from; row < to && s.to != nullptr; ++row)
      least_key = min(least_key, s.from[row]), last_key = max(last_key, s.to[row]);
    const int heads = static_cast<int>(to - from) * H, tiles = (heads + kTileHeads - 1) / kTileHeads;
    const auto load_heads = [&](int tile) {
      load_rows(of_heads + tile % 2 * kTileHeads * pitch, kTileHeads, s.width, x.query, [&](int i) {
        const int head = tile * kTileHeads + i;
        return head < heads ? x.query + (from * H + head) * s.width : nullptr;
      });
      copy_async_commit();
    };
    if (first_key < last_key && first_key + kTileKeys > least_key) {
      load_rows(of_keys, kTileKeys, s.width, x.latents, [&](int i) {
        return first_key + i < keys.keys ? x.latents + (sequence * keys.keys + first_key + i) * s.width
                                         : nullptr;
      });
      load_heads(0);
      float sums[8] = {};
      for (int tile = 0; tile < tiles; ++tile) {
        load_heads(tile + 1);
        copy_async_wait<1>();
        __syncthreads();
        float z[2][4];
        multiply(z, rows_by_16(of_keys + own_warp() * 16 * pitch, pitch),
                 rows_by_8(of_heads + tile % 2 * kTileHeads * pitch, pitch), s.width);
        const bool is_row_end = (tile + 1) * kTileHeads % H == 0 || H < kTileHeads;
        for (int i = 0; i < 8; ++i) {
          const int column = i / 4 * 8 + own_lane() % 4 * 2 + i % 2, head = tile * kTileHeads + column;
          if (head < heads)
            sums[i] += static_cast<float>(weights[from * H + head]) * fmaxf(z[i / 4][i % 4], 0);
          if (!is_row_end) continue;
          products[column * kScorePitch + own_warp() * 16 + own_lane() / 4 + i / 2 % 2 * 8] = sums[i];
          sums[i] = 0;
        }
        __syncthreads();  // the next heads may come, too
        if (!is_row_end) continue;
        for (int i = thread; i < kTileHeads / together * kTileKeys; i += kTileThreads) {
          const int own = i / kTileKeys, key = i % kTileKeys;
          const Index row = from + tile * kTileHeads / H + own;
          float sum = 0;
          for (int h = 0; h < together; ++h) sum += products[(own * together + h) * kScorePitch + key];
          if (row < to && first_key + key < keys.keys)
            scores[(row - first) * keys.keys + first_key + key] = static_cast<float>(s.scale) * sum;
        }
        __syncthreads();
      }
      copy_async_wait<0>();
      __syncthreads();
    }
    from = to;
  }
}

}  // namespace

bool index_scores_mma(Cuda on, const SparseOperands& x, const BFloat16* weights, float* scores) {
  if (!suits_tiles(on, x)) return false;
  const Index key_tiles = tiles_of(x.keys.top_k, kTileKeys);
  launch(on, "index_scores_mma", index_scores_mma_kernel,
         grid_of(x.keys.rows() * key_tiles, x, kTileHeads, 1), x, key_tiles, weights, scores);
  return true;
}

bool index_scores_mma_backward(Cuda on, const SparseOperands& x, const BFloat16* weights,
                               const float* dscores, Write<BFloat16> dquery, Write<BFloat16> dkey,
                               Write<BFloat16> dweights) {
  if (!suits_tiles(on, x)) return false;
  const Index head_tiles = tiles_of(x.sizes.heads, kTileHeads), key_tiles = tiles_of(x.keys.top_k, kTileKeys);
  if (dquery || dweights)
    with_pairs(x.sizes.width, [&](auto pairs) {
      launch(on, "index_query_gradients_mma", index_query_gradients_mma_kernel<pairs>,
             grid_of(x.keys.rows() * head_tiles, x, kTileHeads, 2), x, head_tiles, weights, dscores, dquery,
             dweights);
    });
  if (!dkey) return true;
  add_pair_gradients(
      on, x.keys, x.sizes.width, kMostPairParts,
      [&](Index first, Index count, BFloat16* parts) {
        with_head_tiles(x.sizes.heads, [&](auto tiles) {
          launch(on, "index_pair_gradients_mma", index_pair_gradients_mma_kernel<tiles>,
                 grid_of(count * key_tiles, x, tiles * kTileHeads, 1), x, first, key_tiles, weights, dscores,
                 parts);
        });
      },
      dkey);
  return true;
}

bool all_index_scores_mma(Cuda on, const SparseOperands& x, const IndexSizes& sizes, Index first, Index rows,
                          const BFloat16* weights, float* scores) {
  const Index H = sizes.heads;
  constexpr Index kMostDown = 65535;  // blocks of a grid
  if (!suits_tiles(on, x) || H == 0 || (H % kTileHeads != 0 && kTileHeads % H != 0) ||
      tiles_of(x.keys.keys, kTileKeys) > kMostDown)
    return false;
  const std::size_t numbers = static_cast<std::size_t>((kTileKeys + 2 * kTileHeads) * pitch_of(sizes.width));
  Grid grid(tiles_of(rows, kRowsOfBlock), tiles_of(x.keys.keys, kTileKeys), 1, kTileThreads);
  grid.shared_bytes = numbers * sizeof(BFloat16) + kTileHeads * kScorePitch * sizeof(float);
  launch(on, "all_index_scores_mma", all_index_scores_mma_kernel, grid, x, sizes, first, rows, weights,
         scores);
  return true;
}

}  // namespace tapeformer::kernels
