#include <tapeformer/autograd/kernels/cuda/attention/sparse_tiles.h>
#include <tapeformer/autograd/kernels/cuda/attention/sparse_warps.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

/// The softmax's running maximum of products, before the scale, and a lane's sums over its keys, of rows g
/// and g + 8.
struct RunningSums {
  float largest[2] = {kMinusInfinity<float>, kMinusInfinity<float>}, total[2] = {0, 0}, mean[2] = {0, 0};
};

/// 16 heads of a query in each block.
template <int kPairs>
__global__ void __launch_bounds__(kTileThreads)
    sparse_forward_mma_kernel(SparseOperands x, Index head_tiles, BFloat16* y, float* log_sums) {
  const SparseBlock own(x, blockIdx.x / head_tiles, static_cast<int>(blockIdx.x % head_tiles) * kTileHeads,
                        kTileHeads, 2);
  const float scale = static_cast<float>(own.s.scale), factor = scale * kLog2E;
  const int g = own_lane() / 4;
  float sums[kPairs][2][4] = {}, scores[2][4];
  RunningSums run;
  own.load_heads(kTileHeads);
  own.for_each_tile([&](int n) {
    own.find_scores(n, scores);
    for (int h = 0; h < 2; ++h) {
      const float most = warp_largest<4>(fmaxf(fmaxf(scores[0][2 * h], scores[0][2 * h + 1]),
                                               fmaxf(scores[1][2 * h], scores[1][2 * h + 1])));
      if (own_lane() % 4 == 0) own.parts[own_warp() * kTileHeads + g + 8 * h] = most;
    }
    __syncthreads();
    for (int h = 0; h < 2; ++h) {
      float most = run.largest[h];
      for (int warp = 0; warp < kTileWarps; ++warp)
        most = fmaxf(most, own.parts[warp * kTileHeads + g + 8 * h]);
      const float shrink = exp2_approx((run.largest[h] - most) * factor);
      run.largest[h] = most, run.total[h] *= shrink;
      for (int f = 0; f < 2; ++f) {
        const float first = exp2_approx((scores[f][2 * h] - most) * factor),
                    second = exp2_approx((scores[f][2 * h + 1] - most) * factor);
        run.total[h] += first + second;
        own.put_weights(f, h, first, second);
      }
#pragma unroll
      for (int i = 0; i < kPairs * 4; ++i) sums[i / 4][i / 2 % 2][2 * h + i % 2] *= shrink;
    }
    __syncthreads();
    own.add_weighted(n, own.s.value_width, sums);
  });
  for (int h = 0; h < 2; ++h) {
    const float total = warp_sum<4>(run.total[h]);
    if (own_lane() % 4 == 0) own.parts[own_warp() * kTileHeads + g + 8 * h] = total;
  }
  __syncthreads();
  for (int h = 0; h < 2; ++h) {
    run.total[h] = 0;
    for (int warp = 0; warp < kTileWarps; ++warp) run.total[h] += own.parts[warp * kTileHeads + g + 8 * h];
    if (own_warp() == 0 && own_lane() % 4 == 0 && own.head + g + 8 * h < own.s.heads)
      log_sums[own.row * own.s.heads + own.head + g + 8 * h] = run.largest[h] * scale + logf(run.total[h]);
  }
  own.for_each_sum(own.s.value_width, sums, [&](Index head, int h, int column, float first, float second) {
    const float share = own.count > 0 ? 1 / run.total[h] : 0;
    *reinterpret_cast<unsigned*>(y + head * own.s.value_width + column) =
        pack_bf16(first * share, second * share);
  });
}

/// The weight of a pair of a key and a head, from its score.
__device__ float weight_of(float score, float scale, float log_sum) {
  return exp2_approx((score * scale - log_sum) * kLog2E);
}

/// 64 keys of a query in each block.
__global__ void __launch_bounds__(kTileThreads)
    key_shares_mma_kernel(SparseOperands x, Index key_tiles, const float* log_sums, float* shares) {
  SparseBlock own(x, blockIdx.x / key_tiles, 0, kTileHeads, 1);
  const int n = static_cast<int>(blockIdx.x % key_tiles);
  const float* const of_heads = log_sums + own.row * own.s.heads;
  float sums[2] = {0, 0};
  own.for_each_product(n, [&](int h, int head, float score) {
    sums[h] += weight_of(score, static_cast<float>(own.s.scale), of_heads[head]);
  });
  own.put_sums(n, sums, [&](Index place, bool is_key, float sum) {
    shares[place] = is_key ? sum / static_cast<float>(own.s.heads) : 0;
  });
}

/// 16 heads of a query in each block: the sums of their rows, and dquery.
template <int kPairs>
__global__ void __launch_bounds__(kTileThreads)
    sparse_query_gradients_mma_kernel(SparseOperands x, Index head_tiles, float* log_sums, float* means,
                                      Write<BFloat16> dquery) {
  const SparseBlock own(x, blockIdx.x / head_tiles, static_cast<int>(blockIdx.x % head_tiles) * kTileHeads,
                        kTileHeads, 2);
  const float scale = static_cast<float>(own.s.scale), factor = scale * kLog2E;
  const int g = own_lane() / 4;
  float scores[2][4], dweights[2][4], sums[kPairs][2][4] = {}, log_sum[2], mean[2];
  RunningSums run;
  own.load_heads(kTileHeads);
  own.for_each_tile([&](int n) {
    own.find_scores(n, scores);
    own.find_dweights(n, dweights);
    for (int h = 0; h < 2; ++h) {
      float most = run.largest[h];
      for (int i = 0; i < 4; ++i) most = fmaxf(most, scores[i / 2][2 * h + i % 2]);
      if (most == kMinusInfinity<float>) continue;
      const float shrink = exp2_approx((run.largest[h] - most) * factor);
      run.largest[h] = most, run.total[h] *= shrink, run.mean[h] *= shrink;
      for (int i = 0; i < 4; ++i) {
        const float weight = exp2_approx((scores[i / 2][2 * h + i % 2] - most) * factor);
        run.total[h] += weight, run.mean[h] = fmaf(weight, dweights[i / 2][2 * h + i % 2], run.mean[h]);
      }
    }
  });
  // Each lane has the sums of its keys: they are joined in the quad, and then over the warps.
  for (int h = 0; h < 2; ++h) {
    const float most = warp_largest<4>(run.largest[h]),
                shrink = run.largest[h] == most ? 1 : exp2_approx((run.largest[h] - most) * factor);
    float* const to = own.parts + own_warp() * kTileHeads + g + 8 * h;
    const float total = warp_sum<4>(run.total[h] * shrink), sum = warp_sum<4>(run.mean[h] * shrink);
    if (own_lane() % 4 == 0)
      to[0] = most, to[kTileWarps * kTileHeads] = total, to[2 * kTileWarps * kTileHeads] = sum;
  }
  __syncthreads();
  for (int h = 0; h < 2; ++h) {
    const float* const from = own.parts + g + 8 * h;
    float most = kMinusInfinity<float>, total = 0, sum = 0;
    for (int warp = 0; warp < kTileWarps; ++warp) most = fmaxf(most, from[warp * kTileHeads]);
    for (int warp = 0; warp < kTileWarps && most != kMinusInfinity<float>; ++warp) {
      const float shrink = exp2_approx((from[warp * kTileHeads] - most) * factor);
      total += from[(kTileWarps + warp) * kTileHeads] * shrink,
          sum += from[(2 * kTileWarps + warp) * kTileHeads] * shrink;
    }
    log_sum[h] = most * scale + logf(total), mean[h] = total > 0 ? sum / total : 0;
    const Index at = own.row * own.s.heads + own.head + g + 8 * h;
    if (own_warp() == 0 && own_lane() % 4 == 0 && own.head + g + 8 * h < own.s.heads)
      log_sums[at] = log_sum[h], means[at] = mean[h];
  }
  if (!dquery) return;
  own.for_each_tile([&](int n) {
    own.find_scores(n, scores);
    own.find_dweights(n, dweights);
    for (int i = 0; i < 4; ++i) {
      const int f = i / 2, h = i % 2;
      const auto slope = [&](int at) {
        return weight_of(scores[f][at], scale, log_sum[h]) * (dweights[f][at] - mean[h]) * scale;
      };
      own.put_weights(f, h, slope(2 * h), slope(2 * h + 1));
    }
    __syncthreads();
    own.add_weighted(n, own.s.width, sums);
  });
  own.for_each_sum(own.s.width, sums, [&](Index head, int, int column, float first, float second) {
    dquery.put(head * own.s.width + column, first);
    dquery.put(head * own.s.width + column + 1, second);
  });
}

/// 64 keys of a query in each block.
template <int kHeadTiles>
__global__ void __launch_bounds__(kTileThreads)
    sparse_pair_gradients_mma_kernel(SparseOperands x, Index first, Index key_tiles, const float* log_sums,
                                     const float* means, BFloat16* parts) {
  SparseBlock own(x, first + blockIdx.x / key_tiles, 0, kHeadTiles * kTileHeads, 1);
  const int n = static_cast<int>(blockIdx.x % key_tiles);
  if (n * kTileKeys >= own.count) return;
  const Index heads = own.row * own.s.heads;
  const float scale = static_cast<float>(own.s.scale);
  own.put_pair_gradients<kHeadTiles, true>(n, first, parts,
                                           [&](int, int head, float& product, float& dweight) {
                                             product = weight_of(product, scale, log_sums[heads + head]);
                                             dweight = product * (dweight - means[heads + head]) * scale;
                                           });
}

/// Adds the parts of the choices [first, end) to the sums [B S, N] of their keys; the first choices begin
/// them, and the last ones end them. A warp for each key.
__global__ void add_pair_gradients_kernel(KeysOfQueries keys, Index width, Choices choices, Index first,
                                          Index end, const BFloat16* parts, float* sums,
                                          Write<BFloat16> to_keys) {
  constexpr int N = 4, kPacks = static_cast<int>(kMostWidth / (kWarp * N)) + 1;
  const int packs = static_cast<int>(width) / N;
  for_each_row<WarpTeam>(keys.all_keys(), [&](Index key) {
    float own[kPacks][N] = {};
    const auto for_own_packs = [&](const auto& f) {
#pragma unroll
      for (int i = 0; i < kPacks; ++i)
        if (const int pack = own_lane() + i * kWarp; pack < packs)
          f(own[i], key * width + pack * N, pack * N);
    };
    if (first > 0)
      for_own_packs([&](float(&to)[N], Index at, int) {
        for (int k = 0; k < N; ++k) to[k] = sums[at + k];
      });
    const Index last = choices.first(key, end);
#pragma unroll 4
    for (Index at = choices.first(key, first); at < last; ++at) {
      const BFloat16* const part = parts + (choices.places[at] - first) * width;
      for_own_packs([&](float(&to)[N], Index, int column) {
        const Pack<BFloat16, N> values = load_pack<N>(part + column);
        for (int k = 0; k < N; ++k) to[k] += static_cast<float>(values.of[k]);
      });
    }
    for_own_packs([&](const float(&of)[N], Index at, int) {
      for (int k = 0; k < N; ++k) {
        if (end == choices.count)
          to_keys.put(at + k, of[k]);
        else
          sums[at + k] = of[k];
      }
    });
  });
}

}  // namespace

void add_pair_gradients(Cuda on, const KeysOfQueries& keys, Index width, Index most_parts,
                        const std::function<void(Index, Index, BFloat16*)>& find, Write<BFloat16> to) {
  const Index rows = keys.rows(), K = keys.top_k;
  const SortedKeys sorted(on, rows * K, keys.all_keys(), keys.chosen);
  const Index together =
      std::clamp<Index>(most_parts / std::max<Index>(K * width, 1), 1, std::max<Index>(rows, 1));
  const Scratch<BFloat16> parts(on, together * K * width);
  const Scratch<float> sums(on, together < rows ? keys.all_keys() * width : 0);
  Index first = 0;
  do {
    const Index count = std::min(together, rows - first);
    find(first, count, parts.data());
    launch(on, "add_pair_gradients", add_pair_gradients_kernel,
           row_blocks(tiles_of(keys.all_keys(), kBlock / kWarp)), keys, width, choices_of(keys, sorted),
           first * K, (first + count) * K, parts.data(), sums.data(), to);
    first += count;
  } while (first < rows);
}

bool sparse_mma_forward(Cuda on, const SparseOperands& x, BFloat16* y, float* shares) {
  if (!suits_tiles(on, x)) return false;
  const Index rows = x.keys.rows(), head_tiles = tiles_of(x.sizes.heads, kTileHeads),
              key_tiles = tiles_of(x.keys.top_k, kTileKeys);
  const Scratch<float> log_sums(on, rows * x.sizes.heads);
  with_pairs(x.sizes.value_width, [&](auto pairs) {
    launch(on, "sparse_forward_mma", sparse_forward_mma_kernel<pairs>,
           grid_of(rows * head_tiles, x, kTileHeads, 2), x, head_tiles, y, log_sums.data());
  });
  if (shares != nullptr)
    launch(on, "key_shares_mma", key_shares_mma_kernel, grid_of(rows * key_tiles, x, kTileHeads, 1), x,
           key_tiles, log_sums.data(), shares);
  return true;
}

bool sparse_mma_backward(Cuda on, const SparseOperands& x, Write<BFloat16> dquery, Write<BFloat16> dlatents,
                         Index most_parts) {
  if (!suits_tiles(on, x)) return false;
  const Index rows = x.keys.rows(), N = x.sizes.width, head_tiles = tiles_of(x.sizes.heads, kTileHeads),
              key_tiles = tiles_of(x.keys.top_k, kTileKeys);
  const Scratch<float> log_sums(on, rows * x.sizes.heads), means(on, rows * x.sizes.heads);
  with_pairs(N, [&](auto pairs) {
    launch(on, "sparse_query_gradients_mma", sparse_query_gradients_mma_kernel<pairs>,
           grid_of(rows * head_tiles, x, kTileHeads, 2), x, head_tiles, log_sums.data(), means.data(),
           dquery);
  });
  if (!dlatents) return true;
  add_pair_gradients(
      on, x.keys, N, most_parts,
      [&](Index first, Index count, BFloat16* parts) {
        with_head_tiles(x.sizes.heads, [&](auto tiles) {
          launch(on, "sparse_pair_gradients_mma", sparse_pair_gradients_mma_kernel<tiles>,
                 grid_of(count * key_tiles, x, tiles * kTileHeads, 1), x, first, key_tiles, log_sums.data(),
                 means.data(), parts);
        });
      },
      dlatents);
  return true;
}

}  // namespace tapeformer::kernels
