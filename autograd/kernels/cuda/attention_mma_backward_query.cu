#include <tapeformer/autograd/kernels/cuda/attention_mma_backward.h>

namespace tapeformer::kernels {
namespace {

/// A block has a tile of queries of one head and moves over the keys. The last queries come first: with a
/// causal mask theirs is the most work.
template <int kWidth, bool kMasks>
__global__ void __launch_bounds__(BackwardBlock<kWidth>::kThreads, BackwardBlock<kWidth>::kAtOnce)
    attention_mma_dquery_kernel(AttentionShape s, MmaGradient x) {
  using Block = BackwardBlock<kWidth>;
  constexpr int kRowTiles = Block::kRowTiles;
  constexpr int kFragments = Block::kStep / 8;  // of moving keys, whose gradients are reckoned at a time
  BackwardShared<kWidth>& shared = *dynamic_shared<BackwardShared<kWidth>>();
  const int all_queries = static_cast<int>(s.queries), keys = static_cast<int>(s.keys);
  const int heads = static_cast<int>(s.heads), tiles = (all_queries + Block::kOwn - 1) / Block::kOwn;
  const int unit = static_cast<int>(blockIdx.x) / tiles, head = unit % heads, b = unit / heads;
  const int group = head / (heads / static_cast<int>(s.groups));
  const int query = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * Block::kOwn;
  const int queries = min(Block::kOwn, all_queries - query);
  const bool drops = kMasks && s.drops;
  const bool has_masks = kMasks && (s.key_mask != nullptr || s.mask != nullptr || x.bias != nullptr);
  const float scale = static_cast<float>(s.scale) * kLog2E;
  const float kept_scale = drops ? static_cast<float>(s.kept_scale) : 1.0f;
  const PhiloxStream random = drops ? s.dropout.settled() : PhiloxStream{};
  const int first_row = own_warp() * kRowTiles * 16;  // of the warp

  const auto load = [&](int key, int stage) {
    auto& to = shared.stages[stage];
    load_tile<kMoving, kWidth, Block::kThreads>(to.rows[0], first_row_of(x.key, s.key, b, key, group),
                                                s.key.row, keys - key, static_cast<int>(s.key_width));
    load_tile<kMoving, kWidth, Block::kThreads>(to.rows[1], first_row_of(x.value, s.value, b, key, group),
                                                s.value.row, keys - key, static_cast<int>(s.value_width));
    copy_async_commit();
  };
  JointRange of_block;
  for (int i = 0; i < Block::kOwn / kMoving; ++i)
    of_block = of_both(of_block, x.prepared.tiles[(b * x.prepared.padded + query) / kMoving + i]);
  const int begin = of_block.from / kMoving * kMoving, end = of_block.to;
  load_tile<Block::kOwn, kWidth, Block::kThreads>(shared.own[0],
                                                  first_row_of(x.query, s.query, b, query, head), s.query.row,
                                                  queries, static_cast<int>(s.key_width));
  load_tile<Block::kOwn, kWidth, Block::kThreads>(shared.own[1],
                                                  first_row_of(x.dy, x.dy_strides, b, query, head),
                                                  x.dy_strides.row, queries, static_cast<int>(s.value_width));
  if (begin < end) load(begin, 0);

  const SeenKeys* const ranges = x.prepared.ranges + b * x.prepared.padded;
  QueryStatistics statistics[2 * kRowTiles];
  JointRange of_warp;
#pragma unroll
  for (int i = 0; i < 2 * kRowTiles; ++i) {
    const int t = query + first_row + own_lane() / 4 + 8 * i;
    statistics[i] = x.prepared.statistics[(Index{b} * heads + head) * x.prepared.padded + t];
    if (t < all_queries) of_warp.add(ranges[t]);
  }
  of_warp.join();

  float sums[kRowTiles][kWidth / 8][4] = {};
  int stage = 0;
  for (int key = begin; key < end; key += kMoving) {
    copy_async_wait<0>();
    __syncthreads();
    const auto& moving = shared.stages[stage];
    if (Block::kStages == 2 && key + kMoving < end) load(key + kMoving, 1 - stage);
    if (of_warp.sees(key, key + kMoving)) {
      const bool is_whole = !has_masks && of_warp.sees_all(key, key + kMoving);
      float weights[kRowTiles][kKeyFragments][4];
      multiply_rows<kWidth>(weights, rows_by_16<kWidth>(shared.own[0] + first_row * kPitch<kWidth>),
                            rows_by_8<kWidth>(moving.rows[0]));
      unsigned seen = 0;
#pragma unroll
      for (int i = 0; i < 2 * kRowTiles; ++i) {
        const int t = query + first_row + own_lane() / 4 + 8 * i;
        const auto weight = [&](int j, int c) -> float& { return weights[i / 2][j][i % 2 * 2 + c]; };
        unsigned bits = kAllSeen;
        if (!is_whole) bits = bits_in_range(ranges[t], key);
        if (kMasks) {
#pragma unroll
          for (int at = 0; at < 2 * kKeyFragments; ++at) weight(at / 2, at % 2) *= scale;
          if (has_masks) bits = bits_by_masks(s, x.bias, b, head, t, key, bits, weight);
        }
        seen |= bits;
        const unsigned kept =
            drops ? kept_bits(random, s.dropped, ((Index{b} * s.heads + head) * s.queries + t) * s.keys + key)
                  : kAllSeen;
#pragma unroll
        for (int at = 0; at < 2 * kKeyFragments; ++at) {
          float& w = weight(at / 2, at % 2);
          w = exp2_approx((kMasks ? w : w * scale) - statistics[i].log_sum);
          if (!is_whole && (bits >> at & 1u) == 0) w = 0;
          if (kMasks && (kept >> at & 1u) == 0) w = -w;
        }
      }
      if (!is_whole) seen = seen_by_warp(seen);
#pragma unroll
      for (int part = 0; part < kKeyFragments; part += kFragments) {
        const int row = 8 * part;  // of the moving keys
        float dscores[kRowTiles][kFragments][4];
        multiply_rows<kWidth>(dscores, rows_by_16<kWidth>(shared.own[1] + first_row * kPitch<kWidth>),
                              rows_by_8<kWidth>(moving.rows[1] + row * kPitch<kWidth>));
        const auto find_dscores = [&](const auto& dscore_of) {
#pragma unroll
          for (int i = 0; i < kRowTiles * kFragments * 4; ++i) {
            const int r = i / (kFragments * 4), j = i / 4 % kFragments;
            float& d = dscores[r][j][i % 4];
            d = dscore_of(weights[r][part + j][i % 4], kMasks ? kept_scale * d : d,
                          statistics[2 * r + i % 4 / 2].delta);
          }
        };
        is_whole && !kMasks ? find_dscores(WholeDscore{}) : find_dscores(MaskedDscore{});
        add_seen_products<kWidth>(sums, dscores, rows_by_16<kWidth>(moving.rows[0] + row * kPitch<kWidth>),
                                  seen >> (2 * part));
      }
    }
    if (Block::kStages == 2) {
      stage = 1 - stage;
    } else if (key + kMoving < end) {
      __syncthreads();
      load(key + kMoving, 0);
    }
  }
  copy_async_wait<0>();

  const Index at = b * s.query.batch + Index{query + first_row} * s.query.row + head * s.query.head;
  put_sums<kWidth>(x.dquery, at, s.query.row, queries - first_row, s.key_width, static_cast<float>(s.scale),
                   sums);
}

template <int kWidth>
void run(Cuda on, const AttentionShape& s, const MmaGradient& x) {
  using Block = BackwardBlock<kWidth>;
  const Index blocks = s.batch * s.heads * tiles_of(s.queries, Block::kOwn);
  const auto kernel = has_options(s, x) ? attention_mma_dquery_kernel<kWidth, true>
                                        : attention_mma_dquery_kernel<kWidth, false>;
  launch(on, "attention_mma_dquery", kernel, dim3(static_cast<unsigned>(blocks)), dim3(Block::kThreads),
         sizeof(BackwardShared<kWidth>), s, x);
}

}  // namespace

void attention_mma_dquery(Cuda on, const AttentionShape& s, const MmaGradient& x) {
  with_width(s, [&](auto width) { run<decltype(width)::value>(on, s, x); });
}

}  // namespace tapeformer::kernels
