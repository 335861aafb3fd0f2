#include <tapeformer/autograd/kernels/cuda/attention/mma/backward.h>

namespace tapeformer::kernels {
namespace {

/// A block has a tile of queries of one head and loops over the keys. The last queries come first: with a
/// causal mask they have the most work.
template <class T, int kWidth, MmaOptions kOptions>
__global__ void __launch_bounds__(BackwardBlock<T, kWidth>::kThreads, BackwardBlock<T, kWidth>::kAtOnce)
    attention_mma_dquery_kernel(AttentionShape s, MmaGradient<T> x) {
  using Block = BackwardBlock<T, kWidth>;
  constexpr int kRowTiles = Block::kRowTiles, kRows = 2 * kRowTiles;
  auto& shared = *dynamic_shared<BackwardShared<T, kWidth>>();
  const int all_queries = static_cast<int>(s.queries);
  const int heads = static_cast<int>(s.heads), tiles = (all_queries + Block::kOwn - 1) / Block::kOwn;
  const int unit = static_cast<int>(blockIdx.x) / tiles, head = unit % heads, b = unit / heads;
  const int query = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * Block::kOwn;
  const ScoreFactors<kOptions> by(s, x.bias);
  const int first_row = own_warp() * kRowTiles * 16;  // of the warp

  JointRange of_block;
  for (int i = 0; i < Block::kOwn / kMoving; ++i)
    of_block = of_both(of_block, x.prepared.tiles[(b * x.prepared.padded + query) / kMoving + i]);
  const int end = of_block.to, begin = of_block.from < end ? of_block.from / kMoving * kMoving : end;
  MovingKeys<T, kWidth> keys(s, x, shared, b, head, query, begin, end);
  const SeenKeys* const ranges = x.prepared.ranges + b * x.prepared.padded;
  const auto range = [&](int t) { return ranges[t]; };
  const auto own = own_queries<kRows>(s, x, by, b, head, query + first_row, range);

  float sums[kRowTiles][kWidth / 8][4] = {};
  keys.for_each([&](int key, const auto& moving) {
    if (!own.joint.sees(key, key + kMoving)) return;
    for_each_dscores<GradientOf::score, kWidth>(
        s, x, by, own, shared.own, moving.rows, key, range, [&](int row, const auto& dscores, unsigned seen) {
          add_seen_products<kWidth>(sums, dscores,
                                    summed_rows<kWidth>(moving.rows[0] + row * kPitch<kWidth, T>), seen);
        });
  });

  const Index at = s.query.at(b, query + first_row, head);
  put_sums<kWidth>(x.dquery, at, s.query.row, all_queries - query - first_row, s.key_width,
                   static_cast<float>(s.scale), sums);
}

template <int kWidth, class T>
void run(Cuda on, const AttentionShape& s, const MmaGradient<T>& x) {
  using Block = BackwardBlock<T, kWidth>;
  const Index blocks = s.batch * s.heads * tiles_of(s.queries, Block::kOwn);
  with_options(options_of(s, x), [&](auto options) {
    launch(on, "attention_mma_dquery", attention_mma_dquery_kernel<T, kWidth, decltype(options)::value>,
           {blocks, Block::kThreads, sizeof(BackwardShared<T, kWidth>)}, s, x);
  });
}

}  // namespace

template <class T>
void attention_mma_dquery(Cuda on, const AttentionShape& s, const MmaGradient<T>& x) {
  with_width<T>(s, [&](auto width) { run<decltype(width)::value>(on, s, x); });
}

template void attention_mma_dquery(Cuda, const AttentionShape&, const MmaGradient<BFloat16>&);
template void attention_mma_dquery(Cuda, const AttentionShape&, const MmaGradient<float>&);

}  // namespace tapeformer::kernels
