#include <tapeformer/autograd/kernels/cuda/attention/mma/backward.h>

namespace tapeformer::kernels {
namespace {

/// A block has a tile of queries of one head and loops over the keys. The last queries come first: with a
/// causal mask they have the most work.
template <int kWidth, MmaOptions kOptions>
__global__ void __launch_bounds__(BackwardBlock<kWidth>::kThreads, BackwardBlock<kWidth>::kAtOnce)
    attention_mma_dquery_kernel(AttentionShape s, MmaGradient x) {
  using Block = BackwardBlock<kWidth>;
  constexpr bool kMasks = kOptions != MmaOptions::none, kModifies = kOptions == MmaOptions::modifiers;
  constexpr int kRowTiles = Block::kRowTiles, kRows = 2 * kRowTiles;
  constexpr int kFragments = Block::kStep / 8;  // of moving keys, whose gradients are computed together
  BackwardShared<kWidth>& shared = *dynamic_shared<BackwardShared<kWidth>>();
  const int all_queries = static_cast<int>(s.queries), keys = static_cast<int>(s.keys);
  const int heads = static_cast<int>(s.heads), tiles = (all_queries + Block::kOwn - 1) / Block::kOwn;
  const int unit = static_cast<int>(blockIdx.x) / tiles, head = unit % heads, b = unit / heads;
  const int group = head / (heads / static_cast<int>(s.groups));
  const int query = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * Block::kOwn;
  const int queries = min(Block::kOwn, all_queries - query);
  const ScoreFactors<kOptions> by(s, x.bias, x.relative);
  const int first_row = own_warp() * kRowTiles * 16;  // of the warp

  JointRange of_block;
  for (int i = 0; i < Block::kOwn / kMoving; ++i)
    of_block = of_both(of_block, x.prepared.tiles[(b * x.prepared.padded + query) / kMoving + i]);
  const int end = of_block.to, begin = of_block.from < end ? of_block.from / kMoving * kMoving : end;
  load_tile<Block::kOwn, kWidth, Block::kThreads>(shared.own[0], x.query + s.query.at(b, query, head),
                                                  s.query.row, queries, static_cast<int>(s.key_width));
  load_tile<Block::kOwn, kWidth, Block::kThreads>(shared.own[1], x.dy + x.dy_strides.at(b, query, head),
                                                  x.dy_strides.row, queries, static_cast<int>(s.value_width));
  const BFloat16* own_key = own_place<kWidth>(x.key + s.key.at(b, begin, group), s.key.row);
  const BFloat16* own_value = own_place<kWidth>(x.value + s.value.at(b, begin, group), s.value.row);
  const auto load = [&](int key, int stage) {
    auto& to = shared.stages[stage];
    load_next_tile<kMoving, kWidth, Block::kThreads>(to.rows[0], own_key, s.key.row, keys - key,
                                                     static_cast<int>(s.key_width));
    load_next_tile<kMoving, kWidth, Block::kThreads>(to.rows[1], own_value, s.value.row, keys - key,
                                                     static_cast<int>(s.value_width));
    copy_async_commit();
  };
  if (begin < end) load(begin, 0);

  const SeenKeys* const ranges = x.prepared.ranges + b * x.prepared.padded;
  float log_sums[kRows], deltas[kRows];
  JointRange of_warp;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int t = query + first_row + own_lane() / 4 + 8 * i;
    const Index at = (Index{b} * heads + head) * x.prepared.padded + t;
    log_sums[i] = x.prepared.log_sums[at], deltas[i] = x.prepared.deltas[at];
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
      const bool is_whole = !by.has_masks && of_warp.sees_all(key, key + kMoving);
      // bits_of_rows, while there are no scores in registers
      std::uint64_t bits = 0, kept = 0;
      if (!is_whole) {
        bits = bits_of_rows<kRows>(query + first_row, [&](int t) {
          const unsigned in_range = bits_in_range(ranges[t], key);
          return by.has_masks ? bits_by_masks(s, b, head, t, key, in_range) : in_range;
        });
      }
      if (by.drops) {
        const PhiloxStream random = s.dropout.settled();
        kept = bits_of_rows<kRows>(query + first_row, [&](int t) {
          return kept_bits(random, s.dropped, ((Index{b} * s.heads + head) * s.queries + t) * s.keys + key);
        });
      }
      float weights[kRowTiles][kKeyFragments][4];
      const auto weight = [&](int row, int j, int c) -> float& {
        return weights[row / 2][j][row % 2 * 2 + c];
      };
      multiply_rows<kWidth>(weights, rows_by_16<kWidth>(shared.own[0] + first_row * kPitch<kWidth>),
                            rows_by_8<kWidth>(moving.rows[0]));
      if constexpr (kModifies) {
        apply_function(s, parameter_of(s, x.parameter, head), static_cast<float>(s.scale), weights);
        if (x.relative != nullptr)
          add_relative_biases<kRows>(s, x.relative, b, head, query + first_row, key, bits, weight);
      }
      if (kMasks && x.bias != nullptr) {
        if (!kModifies) scale_all(weights, by.scale);
        bits = add_biases<kRows>(s, x.bias, b, head, query + first_row, key, bits, weight);
      }
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
#pragma unroll
        for (int i = 0; i < 2 * kKeyFragments; ++i) {
          float& w = weight(row, i / 2, i % 2);
          w = exponential<kMasks>(w * by.factor - log_sums[row]);
        }
      }
      unsigned seen = kAllSeen;
      if (!is_whole) {
        for_each_without<kRows>(bits, [&](int row, int j, int c) { weight(row, j, c) = 0; });
        seen = seen_by_warp(bits);
      }
      if (by.drops) {
        for_each_without<kRows>(kept, [&](int row, int j, int c) { weight(row, j, c) *= -1; });
      }
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
            d = dscore_of(weights[r][part + j][i % 4], kMasks ? by.kept_scale * d : d,
                          deltas[2 * r + i % 4 / 2]);
          }
        };
        is_whole && !kMasks ? find_dscores(WholeDscore{}) : find_dscores(MaskedDscore{});
        if constexpr (kModifies) {
          if (s.function != ScoreFunction::none) {
            float scores[kRowTiles][kFragments][4];  // again
            multiply_rows<kWidth>(scores, rows_by_16<kWidth>(shared.own[0] + first_row * kPitch<kWidth>),
                                  rows_by_8<kWidth>(moving.rows[0] + row * kPitch<kWidth>));
            multiply_slopes(s, parameter_of(s, x.parameter, head), static_cast<float>(s.scale), scores,
                            dscores);
          }
        }
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

  if (kMasks && x.prepared.shares != nullptr) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int t = query + first_row + own_lane() / 4 + 8 * i;
      const float share = x.prepared.shares[(Index{b} * heads + head) * x.prepared.padded + t];
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n)
        sums[i / 2][n][i % 2 * 2] *= share, sums[i / 2][n][i % 2 * 2 + 1] *= share;
    }
  }
  const Index at = s.query.at(b, query + first_row, head);
  put_sums<kWidth>(x.dquery, at, s.query.row, queries - first_row, s.key_width, static_cast<float>(s.scale),
                   sums);
}

template <int kWidth>
void run(Cuda on, const AttentionShape& s, const MmaGradient& x) {
  using Block = BackwardBlock<kWidth>;
  const Index blocks = s.batch * s.heads * tiles_of(s.queries, Block::kOwn);
  with_options(options_of(s, x), [&](auto options) {
    launch(on, "attention_mma_dquery", attention_mma_dquery_kernel<kWidth, decltype(options)::value>,
           {blocks, Block::kThreads, sizeof(BackwardShared<kWidth>)}, s, x);
  });
}

}  // namespace

void attention_mma_dquery(Cuda on, const AttentionShape& s, const MmaGradient& x) {
  with_width(s, [&](auto width) { run<decltype(width)::value>(on, s, x); });
}

}  // namespace tapeformer::kernels
