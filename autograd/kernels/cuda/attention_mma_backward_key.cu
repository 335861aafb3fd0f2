#include <tapeformer/autograd/kernels/cuda/attention_mma_backward.h>

namespace tapeformer::kernels {
namespace {

/// A block has a tile of keys of one group and moves over the queries that see them, of one head that shares
/// the keys after the other. kKeys and kValues: which gradients it sums; both where the registers do.
/// Source:  Dao 2023, arXiv:2307.08691, algorithm 2
template <int kWidth, bool kMasks, bool kKeys, bool kValues>
__global__ void __launch_bounds__(BackwardBlock<kWidth>::kThreads, BackwardBlock<kWidth>::kAtOnce)
    attention_mma_dkey_kernel(AttentionShape s, MmaGradient x) {
  using Block = BackwardBlock<kWidth>;
  constexpr int kRowTiles = Block::kRowTiles;
  constexpr int kStep = Block::kStep, kFragments = kStep / 8;
  BackwardShared<kWidth>& shared = *dynamic_shared<BackwardShared<kWidth>>();
  const int all_keys = static_cast<int>(s.keys), all_queries = static_cast<int>(s.queries);
  const int groups = static_cast<int>(s.groups), heads = static_cast<int>(s.heads) / groups;  // of a group
  const int tiles = (all_keys + Block::kOwn - 1) / Block::kOwn;
  const int unit = static_cast<int>(blockIdx.x) / tiles, group = unit % groups, b = unit / groups;
  const int key = static_cast<int>(blockIdx.x) % tiles * Block::kOwn;
  const int keys = min(Block::kOwn, all_keys - key);
  const bool drops = kMasks && s.drops;
  const bool has_masks = kMasks && (s.key_mask != nullptr || s.mask != nullptr || x.bias != nullptr);
  const float scale = static_cast<float>(s.scale) * kLog2E;
  const float kept_scale = drops ? static_cast<float>(s.kept_scale) : 1.0f;
  const int first_row = own_warp() * kRowTiles * 16;  // of the warp

  load_tile<Block::kOwn, kWidth, Block::kThreads>(shared.own[0], first_row_of(x.key, s.key, b, key, group),
                                                  s.key.row, keys, static_cast<int>(s.key_width));
  load_tile<Block::kOwn, kWidth, Block::kThreads>(shared.own[1],
                                                  first_row_of(x.value, s.value, b, key, group), s.value.row,
                                                  keys, static_cast<int>(s.value_width));
  // The tiles of queries from the first to the last that see a key.
  const int of_queries = static_cast<int>(x.prepared.padded / kMoving);
  const JointRange* const joint = x.prepared.tiles + b * of_queries;
  int first = of_queries, last = -1;
  for (int i = static_cast<int>(threadIdx.x); i < of_queries; i += Block::kThreads) {
    if (joint[i].sees(key, key + keys)) first = min(first, i), last = i;
  }
  first = block_reduce(first, of_queries, [](int a, int c) { return min(a, c); });
  last = block_reduce(last, -1, [](int a, int c) { return max(a, c); });
  const int count = max(0, last - first + 1), steps = count * heads;

  const auto load = [&](int step, int stage) {
    auto& to = shared.stages[stage];
    const int head = group * heads + step / count, tile = first + step % count, query = tile * kMoving;
    const int queries = all_queries - query;
    const Index row = Index{b} * x.prepared.padded + query;  // of the first query, in any head
    load_tile<kMoving, kWidth, Block::kThreads>(to.rows[0], first_row_of(x.query, s.query, b, query, head),
                                                s.query.row, queries, static_cast<int>(s.key_width));
    load_tile<kMoving, kWidth, Block::kThreads>(to.rows[1], first_row_of(x.dy, x.dy_strides, b, query, head),
                                                x.dy_strides.row, queries, static_cast<int>(s.value_width));
    const int i = static_cast<int>(threadIdx.x) * 2;
    if (i < kMoving) {
      copy_async_16(&to.statistics[i],
                    x.prepared.statistics + (Index{b} * s.heads + head) * x.prepared.padded + query + i,
                    true);
      copy_async_16(&to.ranges[i], x.prepared.ranges + row + i, true);
    }
    if (threadIdx.x == 0) copy_async_16(&to.joint, joint + tile, true);
    copy_async_commit();
  };

  float dkeys[kKeys ? kRowTiles : 1][kWidth / 8][4] = {},
                                              dvalues[kValues ? kRowTiles : 1][kWidth / 8][4] = {};
  if (steps > 0) load(0, 0);
  for (int step = 0; step < steps; ++step) {
    copy_async_wait<0>();
    __syncthreads();
    const int stage = Block::kStages == 2 ? step % 2 : 0;
    const auto& moving = shared.stages[stage];
    if (Block::kStages == 2 && step + 1 < steps) load(step + 1, 1 - stage);
    const int head = group * heads + step / count, query = (first + step % count) * kMoving;
    if (drops) {
      const PhiloxStream random = s.dropout.settled();
      constexpr int kTiles = Block::kOwn / kKeyTile;
      for (int i = static_cast<int>(threadIdx.x) / 4; i < kMoving * kTiles; i += Block::kThreads / 4) {
        const int row = i / kTiles, tile = i % kTiles;
        const Index element =
            ((Index{b} * s.heads + head) * s.queries + query + row) * s.keys + key + tile * kKeyTile;
        shared.kept[row][tile][own_lane() % 4] =
            static_cast<std::uint16_t>(kept_bits(random, s.dropped, element));
      }
      __syncthreads();
    }
    const int own_key = key + first_row + own_lane() / 4;
    const bool is_seen = moving.joint.sees(key + first_row, key + first_row + kRowTiles * 16);
    const bool is_whole =
        !has_masks && moving.joint.sees_all(key + first_row, key + first_row + kRowTiles * 16);
    for (int at = 0; is_seen && at < kMoving; at += kStep) {
      float weights[kRowTiles][kFragments][4], dscores[kRowTiles][kFragments][4];
      multiply_rows<kWidth>(weights, rows_by_16<kWidth>(shared.own[0] + first_row * kPitch<kWidth>),
                            rows_by_8<kWidth>(moving.rows[0] + at * kPitch<kWidth>));
      unsigned real = 0;  // bits of the queries that see anything, as those of keys are
#pragma unroll
      for (int j = 0; j < kFragments; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int row = at + 8 * j + own_lane() % 4 * 2 + c;  // of the moving queries
          const float log_sum = moving.statistics[row].log_sum;
          real |= log_sum != -kNothing ? 1u << (2 * j + c) : 0u;
          unsigned kept = kAllSeen;
          if (drops) {
            const int own = (first_row + own_lane() / 4) % kKeyTile;
            kept = shared.kept[row][(first_row) / kKeyTile][own_lane() / 8] >> (own / 8 * 2 + own % 2);
          }
#pragma unroll
          for (int i = 0; i < 2 * kRowTiles; ++i) {
            float& w = weights[i / 2][j][i % 2 * 2 + c];
            if (kMasks) w *= scale;
            bool is_visible = true;
            if (!is_whole) {
              const SeenKeys range = moving.ranges[row];
              const int k = own_key + 8 * i;
              is_visible = k >= range.from && k < range.to;
              float bias = 0;
              if (has_masks && is_visible)
                is_visible = may_see(s, x.bias, b, head, query + row, Index{k}, bias);
              if (kMasks) w += bias * kLog2E;
            }
            w = is_visible ? exp2_approx((kMasks ? w : w * scale) - log_sum) : 0.0f;
            if (kMasks && (kept >> (2 * i) & 1u) == 0) w = -w;
          }
        }
      }
      if (is_whole) real = kAllSeen;
      if (kValues) {
        float kept[kRowTiles][kFragments][4];
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
          for (int j = 0; j < kFragments; ++j) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
              kept[r][j][i] = kMasks && weights[r][j][i] < 0 ? 0.0f : weights[r][j][i];
          }
        }
        add_seen_products<kWidth>(dvalues, kept, rows_by_16<kWidth>(moving.rows[1] + at * kPitch<kWidth>),
                                  real);
      }
      if (!kKeys) continue;
      multiply_rows<kWidth>(dscores, rows_by_16<kWidth>(shared.own[1] + first_row * kPitch<kWidth>),
                            rows_by_8<kWidth>(moving.rows[1] + at * kPitch<kWidth>));
      const auto find_dscores = [&](const auto& dscore_of) {
#pragma unroll
        for (int jc = 0; jc < kFragments * 2; ++jc) {
          const int j = jc / 2, c = jc % 2;
          const float delta = moving.statistics[at + 8 * j + own_lane() % 4 * 2 + c].delta;
#pragma unroll
          for (int i = 0; i < 2 * kRowTiles; ++i) {
            float& d = dscores[i / 2][j][i % 2 * 2 + c];
            d = dscore_of(weights[i / 2][j][i % 2 * 2 + c], kMasks ? kept_scale * d : d, delta);
          }
        }
      };
      is_whole && !kMasks ? find_dscores(WholeDscore{}) : find_dscores(MaskedDscore{});
      add_seen_products<kWidth>(dkeys, dscores, rows_by_16<kWidth>(moving.rows[0] + at * kPitch<kWidth>),
                                real);
    }
    if (Block::kStages == 1 && step + 1 < steps) {
      __syncthreads();
      load(step + 1, 0);
    }
  }
  copy_async_wait<0>();

  const Index row = Index{key} + first_row;
  if constexpr (kKeys)
    put_sums<kWidth>(x.dkey, b * s.key.batch + row * s.key.row + group * s.key.head, s.key.row,
                     keys - first_row, s.key_width, static_cast<float>(s.scale), dkeys);
  if constexpr (kValues)
    put_sums<kWidth>(x.dvalue, b * s.value.batch + row * s.value.row + group * s.value.head, s.value.row,
                     keys - first_row, s.value_width, kept_scale, dvalues);
}

template <int kWidth, bool kKeys, bool kValues>
void run(Cuda on, const char* name, const AttentionShape& s, const MmaGradient& x) {
  using Block = BackwardBlock<kWidth>;
  const Index blocks = s.batch * s.groups * tiles_of(s.keys, Block::kOwn);
  const auto kernel = has_options(s, x) ? attention_mma_dkey_kernel<kWidth, true, kKeys, kValues>
                                        : attention_mma_dkey_kernel<kWidth, false, kKeys, kValues>;
  launch(on, name, kernel, dim3(static_cast<unsigned>(blocks)), dim3(Block::kThreads),
         sizeof(BackwardShared<kWidth>), s, x);
}

}  // namespace

void attention_mma_dkey(Cuda on, const AttentionShape& s, const MmaGradient& x) {
  with_width(s, [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    if constexpr (kWidth < 256) {
      run<kWidth, true, true>(on, "attention_mma_dkey", s, x);
    } else {  // the sums of one gradient fill the registers
      if (x.dkey) run<kWidth, true, false>(on, "attention_mma_dkey", s, x);
      if (x.dvalue) run<kWidth, false, true>(on, "attention_mma_dvalue", s, x);
    }
  });
}

}  // namespace tapeformer::kernels
