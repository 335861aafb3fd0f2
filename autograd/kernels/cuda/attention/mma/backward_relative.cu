#include <tapeformer/autograd/kernels/cuda/attention/mma/backward.h>
#include <tapeformer/autograd/kernels/cuda/attention/plain/gradient.h>

namespace tapeformer::kernels {
namespace {

constexpr Index kEnoughBlocks = 2112;            // with a causal mask, half of them have no pairs
constexpr std::size_t kMostShared = 227 * 1024;  // of a block, on any device

/// Adds the warp's scores' gradients to the sums of distances from `low` on. The first key of `dscores` is
/// `key`. The keys that a lane takes of the rows lie at distances that no other lane has.
template <int kStep, int kRows, int kColumns>
__device__ void add_diagonals(const float (&dscores)[kRows][kColumns], const int* positions, int rows,
                              int key, int low, float (&sums)[kDistances]) {
  for (int from = 0; from < kStep; from += kWarp) {
    int own = 0;
    float sum = 0;
    for (int row = 0; row < min(kRows, rows); ++row) {
      const int column = from + ((own_lane() + positions[row]) & (kWarp - 1));
      const int distance = key + column - positions[row] - low;
      if (distance < 0 || distance >= kDistances) continue;
      if (distance != own) {
        if (sum != 0) sums[own] += sum;
        own = distance, sum = 0;
      }
      sum += dscores[row][column];
    }
    if (sum != 0) sums[own] += sum;
  }
}

/// A block has kDistances neighbouring distances of a head, or of all heads that share the bias, and sums
/// over the tiles of queries that have keys this far away. Blocks with the longest distances after a query
/// come first: a causal mask leaves them nothing, and the next ones the most pairs.
template <class T, int kWidth>
__global__ void __launch_bounds__(BackwardBlock<T, kWidth>::kThreads, BackwardBlock<T, kWidth>::kAtOnce)
    attention_mma_drelative_kernel(AttentionShape s, MmaGradient<T> x, int parts, int heads,
                                   Write<float> to) {
  using Block = BackwardBlock<T, kWidth>;
  constexpr int kRows = 2 * Block::kRowTiles, kRowsOfWarp = 8 * kRows;
  auto& shared = *dynamic_shared<RelativeShared<T, kWidth>>();
  const int all_queries = static_cast<int>(s.queries), tiles = (all_queries + Block::kOwn - 1) / Block::kOwn;
  const int count = 2 * static_cast<int>(s.reach) + 1, summed_heads = static_cast<int>(s.heads) / heads;
  const int part = static_cast<int>(blockIdx.x) % parts, unit = static_cast<int>(blockIdx.x) / parts;
  const int first = ((count - 1) / kDistances - unit / heads) * kDistances;  // of the distances
  const int low = first - static_cast<int>(s.reach), warp = own_warp(), first_row = warp * kRowsOfWarp;
  const ScoreFactors<MmaOptions::modifiers> by(s, x.bias);
  for (int i = own_lane(); i < kDistances; i += kWarp) shared.sums[warp][i] = 0;
  const Index steps = s.batch * summed_heads * tiles;
  for (Index i = steps * part / parts; i < steps * (part + 1) / parts; ++i) {
    const int step = static_cast<int>(i), query = step % tiles * Block::kOwn;
    const int head = unit % heads + step / tiles % summed_heads, b = step / tiles / summed_heads;
    const int queries = min(Block::kOwn, all_queries - query);
    __syncthreads();  // the rows and positions of the last tile have been read
    for (int t = static_cast<int>(threadIdx.x); t < Block::kOwn; t += Block::kThreads)
      shared.positions[t] = t < queries ? s.positions[Index{b} * all_queries + query + t] : 0;
    __syncthreads();
    const SeenKeys* const ranges = x.prepared.ranges + b * x.prepared.padded;
    const auto range = [&](int t) {
      const int nearest = shared.positions[t - query] + low;
      return SeenKeys{max(ranges[t].from, nearest), min(ranges[t].to, nearest + kDistances)};
    };
    JointRange of_block;
    for (int t = own_lane(); t < queries; t += kWarp) of_block.add(range(query + t));
    of_block.join();
    if (of_block.from >= of_block.to) continue;
    MovingKeys<T, kWidth> keys(s, x, shared, b, head, query, of_block.from, of_block.to);
    const auto own = own_queries<kRows>(s, x, by, b, head, query + first_row, range);
    keys.for_each([&](int key, const auto& moving) {
      if (!own.joint.sees(key, key + kMoving)) return;
      for_each_dscores<GradientOf::biases, kWidth>(
          s, x, by, own, shared.own, moving.rows, key, range, [&](int from, const auto& dscores, unsigned) {
            auto& to_rows = shared.dscores[warp];
            __syncwarp();  // the last ones have been read
#pragma unroll
            for (int n = 0; n < kRows * Block::kStep / 8; ++n) {
              const int row = n % kRows, j = n / kRows;
              *reinterpret_cast<float2*>(&to_rows[8 * row + own_lane() / 4][8 * j + own_lane() % 4 * 2]) = {
                  dscores[row / 2][j][row % 2 * 2], dscores[row / 2][j][row % 2 * 2 + 1]};
            }
            __syncwarp();
            add_diagonals<Block::kStep>(to_rows, shared.positions + first_row, queries - first_row,
                                        key + from, low, shared.sums[warp]);
          });
    });
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < min(kDistances, count - first); i += Block::kThreads) {
    float sum = 0;
    for (int w = 0; w < Block::kWarps; ++w) sum += shared.sums[w][i];
    to.put((Index{part} * heads + unit % heads) * count + first + i, sum);
  }
}

}  // namespace

template <class T>
void attention_mma_drelative(Cuda on, const AttentionShape& s, const MmaGradient<T>& x,
                             const Write<float>& drelative) {
  const Index heads = s.relative_stride == 0 ? 1 : s.heads, count = 2 * s.reach + 1;
  const Index units = heads * tiles_of(count, kDistances);
  with_width<T>(s, [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    using Block = BackwardBlock<T, kWidth>;
    // with_prepared() refuses the others, of which no kernel is compiled.
    if constexpr (sizeof(RelativeShared<T, kWidth>) <= kMostShared) {
      const Index steps = s.batch * s.heads / heads * tiles_of(s.queries, Block::kOwn);
      sum_in_parts(on, units, steps, kEnoughBlocks, heads * count, drelative,
                   [&](Index parts, Write<float> to) {
                     launch(on, "attention_mma_drelative", attention_mma_drelative_kernel<T, kWidth>,
                            {units * parts, Block::kThreads, sizeof(RelativeShared<T, kWidth>)}, s, x,
                            static_cast<int>(parts), static_cast<int>(heads), to);
                   });
    }
  });
}

template decltype(attention_mma_drelative<BFloat16>) attention_mma_drelative<BFloat16>;
template decltype(attention_mma_drelative<float>) attention_mma_drelative<float>;

}  // namespace tapeformer::kernels
