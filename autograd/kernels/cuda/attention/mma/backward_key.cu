#include <tapeformer/autograd/kernels/cuda/attention/mma/backward.h>

namespace tapeformer::kernels {
namespace {

// A lane has 32 pairs of a moving query and an own key at a time: query 8 j + 2 t + c and key g + 8 i, one of
// kRows. Decisions about them are bits.
template <int kRows>
constexpr unsigned pair_bit(int j, int i, int c) {
  return 1u << ((j * kRows + i) * 2 + c);
}
/// The bits of c = 0 and all i.
template <int kRows>
constexpr unsigned kPairsOfQuery = 0x55u & ((1u << 2 * kRows) - 1);
/// The bits of i = 0 and all j and c.
template <int kRows>
constexpr unsigned kPairsOfKey = kRows == 2 ? 0x33333333u : 0x03030303u;

/// Calls f(j, i, c) for the pairs without a bit.
template <int kRows, class F>
__device__ void for_each_pair_without(unsigned pairs, F&& f) {
#pragma unroll
  for (int bit = 0; bit < 32; ++bit) {
    if ((pairs >> bit & 1u) == 0) f(bit / (2 * kRows), bit / 2 % kRows, bit % 2);
  }
}

/// The pairs whose key is in its query's range. `ranges` begins with the lane's first query, `key` is its
/// first key.
template <int kRows>
__device__ unsigned pairs_in_ranges(const SeenKeys* ranges, int key) {
  unsigned pairs = 0;
#pragma unroll
  for (int jc = 0; jc < 32 / kRows; ++jc) {
    const SeenKeys range = ranges[8 * (jc / 2) + jc % 2];
    const auto count = static_cast<unsigned>(max(0, range.to - range.from));
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (static_cast<unsigned>(key + 8 * i - range.from) < count)
        pairs |= pair_bit<kRows>(jc / 2, i, jc % 2);
    }
  }
  return pairs;
}

/// The `pairs` that key_mask and mask keep, for the lane's first query and key.
template <int kRows>
__device__ unsigned pairs_by_masks(const AttentionShape& s, int b, int head, int query, int key,
                                   unsigned pairs) {
  if (s.key_mask != nullptr) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const unsigned of_key = kPairsOfKey<kRows> << 2 * i;
      if ((pairs & of_key) != 0 && !s.key_mask[b * s.keys + key + 8 * i]) pairs &= ~of_key;
    }
  }
  if (s.mask == nullptr) return pairs;
  const Index* const strides = s.mask_strides;
  const bool* mask = s.mask + b * strides[0] + head * strides[1] + query * strides[2] + key * strides[3];
#pragma unroll 1
  for (int first = 0; first < 32; first += 2 * kRows) {
#pragma unroll
    for (int bit = 0; bit < 2 * kRows; ++bit) {
      if ((pairs >> first >> bit & 1u) != 0 && !mask[bit % 2 * strides[2] + bit / 2 * 8 * strides[3]])
        pairs &= ~(1u << first << bit);
    }
    mask += 8 * strides[2];
  }
  return pairs;
}

/// Adds biases to the scores(j, i, c), references, that have a bit: those of the lane's first
/// key and its first query plus n at row_at(n), of further keys `stride` apart. Returns the pairs that biases
/// keep.
template <int kRows, class RowAt, class Scores>
__device__ unsigned add_rows_of_pairs(unsigned pairs, Index stride, RowAt&& row_at, Scores&& scores) {
#pragma unroll
  for (int jc = 0; jc < 32 / kRows; ++jc) {
    const int j = jc / 2, c = jc % 2;
    const float* const of_row = row_at(8 * j + c);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const unsigned bit = pair_bit<kRows>(j, i, c);
      const float added = (pairs & bit) != 0 ? of_row[8 * i * stride] : kNothing;
      if (added == kNothing) pairs &= ~bit;
      scores(j, i, c) += added;
    }
  }
  return pairs;
}
/// Adds those of an additive mask, for the lane's first query and key.
template <int kRows, class Scores>
__device__ unsigned add_biases_of_pairs(const AttentionShape& s, const float* bias, int b, int head,
                                        int query, int key, unsigned pairs, Scores&& scores) {
  const Index* const strides = s.bias_strides;
  bias += b * strides[0] + head * strides[1] + query * strides[2] + key * strides[3];
  return add_rows_of_pairs<kRows>(
      pairs, strides[3], [&](int n) { return bias + n * strides[2]; }, scores);
}

/// A block's keys.
struct KeyPlace {
  int b, group, key;
};
template <int kOwn>
__device__ KeyPlace place_of_keys(const AttentionShape& s) {
  const int block = static_cast<int>(anew(blockIdx.x)), groups = static_cast<int>(s.groups);
  const int tiles = (static_cast<int>(s.keys) + kOwn - 1) / kOwn, unit = block / tiles;
  return {unit / groups, unit % groups, block % tiles * kOwn};
}

/// A block has a tile of keys of one group and loops over the queries that see them, for one head after
/// another. kKeys and kValues: the gradients that it sums; both if the registers suffice.
/// Source:  Dao 2023, arXiv:2307.08691, algorithm 2
template <class T, int kWidth, MmaOptions kOptions, bool kKeys, bool kValues>
__global__ void __launch_bounds__(BackwardBlock<T, kWidth>::kThreads, BackwardBlock<T, kWidth>::kAtOnce)
    attention_mma_dkey_kernel(AttentionShape s, MmaGradient<T> x) {
  using Block = BackwardBlock<T, kWidth>;
  constexpr bool kMasks = kOptions != MmaOptions::none, kModifies = kOptions == MmaOptions::modifiers;
  constexpr int kRowTiles = Block::kRowTiles, kRows = 2 * kRowTiles;
  constexpr int kStep = Block::kStep, kFragments = kStep / 8, kRowSize = kPitch<kWidth, T>;
  auto& shared = *dynamic_shared<BackwardShared<T, kWidth>>();
  const int all_keys = static_cast<int>(s.keys), all_queries = static_cast<int>(s.queries);
  const int heads = static_cast<int>(s.heads) / static_cast<int>(s.groups);  // of a group
  const KeyPlace start = place_of_keys<Block::kOwn>(s);
  const int b = start.b, group = start.group, key = start.key;
  const int keys = min(Block::kOwn, all_keys - key);
  const ScoreFactors<kOptions> by(s, x.bias);
  const int first_row = own_warp() * kRowTiles * 16;  // of the warp

  load_tile<Block::kOwn, kWidth, Block::kThreads>(shared.own[0], x.key + s.key.at(b, key, group), s.key.row,
                                                  keys, static_cast<int>(s.key_width));
  load_tile<Block::kOwn, kWidth, Block::kThreads>(shared.own[1], x.value + s.value.at(b, key, group),
                                                  s.value.row, keys, static_cast<int>(s.value_width));
  // The tiles of queries from the first to the last that see a key.
  const int of_queries = static_cast<int>(x.prepared.padded / kMoving);
  const JointRange* const joint = x.prepared.tiles + b * of_queries;
  int first = of_queries, last = -1;
  for (int i = static_cast<int>(threadIdx.x); i < of_queries; i += Block::kThreads) {
    if (joint[i].sees(key, key + keys)) first = min(first, i), last = i;
  }
  first = block_reduce(first, of_queries, [](int a, int c) { return min(a, c); });
  last = block_reduce(last, -1, [](int a, int c) { return max(a, c); });
  const int steps = max(0, last - first + 1) * heads;

  // The steps loop over these tiles for each head; this is the next to load.
  int next_tile = first, next_head = group * heads;
  const auto load = [&](int stage) {
    auto& to = shared.stages[stage];
    const int head = next_head, tile = next_tile, query = tile * kMoving, queries = all_queries - query;
    const int entry = anew(b);
    const Index row = Index{entry} * x.prepared.padded + query;  // of the first query, in any head
    if (++next_tile > last) next_tile = first, ++next_head;
    load_tile<kMoving, kWidth, Block::kThreads>(to.rows[0], x.query + s.query.at(entry, query, head),
                                                s.query.row, queries, static_cast<int>(s.key_width));
    load_tile<kMoving, kWidth, Block::kThreads>(to.rows[1], x.dy + x.dy_strides.at(entry, query, head),
                                                x.dy_strides.row, queries, static_cast<int>(s.value_width));
    // The first threads load 16 bytes of the facts of queries each.
    const int i = static_cast<int>(anew(threadIdx.x)), part = i / 16, of_four = i % 16 * 4;
    const Index of_head = (Index{entry} * s.heads + head) * x.prepared.padded + query + of_four;
    if (part == 0) copy_async_16(to.log_sums + of_four, x.prepared.log_sums + of_head, true);
    if (part == 1) copy_async_16(to.deltas + of_four, x.prepared.deltas + of_head, true);
    if (kMasks && part == 2 && x.prepared.shares != nullptr)
      copy_async_16(to.shares + of_four, x.prepared.shares + of_head, true);
    if (i < kMoving / 2) copy_async_16(to.ranges + 2 * i, x.prepared.ranges + row + 2 * i, true);
    if (i == 0) copy_async_16(&to.joint, x.prepared.tiles + row / kMoving, true);
    copy_async_commit();
  };

  float dkeys[kKeys ? kRowTiles : 1][kWidth / 8][4] = {},
                                              dvalues[kValues ? kRowTiles : 1][kWidth / 8][4] = {};
  if (steps > 0) load(0);
  int tile = first, head = group * heads;
  for (int left = steps, stage = 0; left > 0; --left) {
    copy_async_wait<0>();
    round_loaded<T, kWidth>(shared, stage, left == steps);
    __syncthreads();
    const auto& moving = shared.stages[stage];
    if (Block::kStages == 2 && left > 1) load(1 - stage);
    const int query = tile * kMoving;
    if (by.drops) {
      const PhiloxStream random = s.dropout.settled();
      constexpr int kTiles = Block::kOwn / kKeyTile;
      for (int i = static_cast<int>(threadIdx.x) / 4; i < kMoving * kTiles; i += Block::kThreads / 4) {
        const int row = i / kTiles, part = i % kTiles;
        const Index element =
            ((Index{b} * s.heads + head) * s.queries + query + row) * s.keys + key + part * kKeyTile;
        shared.kept[row][part][own_lane() % 4] =
            static_cast<std::uint16_t>(kept_bits(random, s.dropped, element));
      }
      __syncthreads();
    }
    const int own_key = key + first_row + own_lane() / 4;
    const bool is_seen = moving.joint.sees(key + first_row, key + first_row + kRowTiles * 16);
    const bool is_whole = !by.has_masks && (!kModifies || query + kMoving <= all_queries) &&
                          moving.joint.sees_all(key + first_row, key + first_row + kRowTiles * 16);
    for (int at = 0; is_seen && at < kMoving; at += kStep) {
      const int own_query = at + own_lane() % 4 * 2;  // among the moving ones
      unsigned visible = ~0u, kept = 0;               // computed while there are no scores in registers
      if (!is_whole) visible = pairs_in_ranges<kRows>(moving.ranges + own_query, own_key);
      if (by.has_masks) visible = pairs_by_masks<kRows>(s, b, head, query + own_query, own_key, visible);
      if (by.drops) {
        const int own = (first_row + own_lane() / 4) % kKeyTile;
#pragma unroll
        for (int jc = 0; jc < 2 * kFragments; ++jc) {
          const int row = own_query + 8 * (jc / 2) + jc % 2;
          const unsigned of_row = shared.kept[row][first_row / kKeyTile][own_lane() / 8];
          kept |=
              (of_row >> (own / 8 * 2 + own % 2) & kPairsOfQuery<kRows>)*pair_bit<kRows>(jc / 2, 0, jc % 2);
        }
      }
      float weights[kRowTiles][kFragments][4], dscores[kRowTiles][kFragments][4];
      const auto weight = [&](int j, int i, int c) -> float& { return weights[i / 2][j][i % 2 * 2 + c]; };
      const auto dscore = [&](int j, int i, int c) -> float& { return dscores[i / 2][j][i % 2 * 2 + c]; };
      const auto of_two = [&](const float(&of_all)[kMoving], int j) {
        return *reinterpret_cast<const float2*>(of_all + own_query + 8 * j);
      };
      const auto find_dweights = [&] {  // less delta
        multiply_rows<kWidth>(dscores, rows_by_16(shared.own[1] + first_row * kRowSize, kRowSize),
                              rows_by_8(moving.rows[1] + at * kRowSize, kRowSize));
        if (by.drops) for_each_pair_without<kRows>(kept, [&](int j, int i, int c) { dscore(j, i, c) = 0; });
#pragma unroll
        for (int j = 0; j < kFragments; ++j) {
          const float2 deltas = of_two(moving.deltas, j);
#pragma unroll
          for (int i = 0; i < kRows; ++i) {
            dscore(j, i, 0) = (kMasks ? by.kept_scale : 1.0f) * dscore(j, i, 0) - deltas.x;
            dscore(j, i, 1) = (kMasks ? by.kept_scale : 1.0f) * dscore(j, i, 1) - deltas.y;
          }
        }
      };
      multiply_rows<kWidth>(weights, rows_by_16(shared.own[0] + first_row * kRowSize, kRowSize),
                            rows_by_8(moving.rows[0] + at * kRowSize, kRowSize));
      if constexpr (kModifies) {
        const float parameter = parameter_of(s, x.parameter, head), scale = static_cast<float>(s.scale);
        if constexpr (kKeys)
          find_dweights(), apply_function(s, parameter, scale, weights, dscores);
        else
          apply_function(s, parameter, scale, weights);
        if (x.relative != nullptr)
          visible = add_rows_of_pairs<kRows>(
              visible, 1,
              [&](int n) { return relative_row(s, x.relative, b, head, query + own_query + n) + own_key; },
              weight);
      }
      if (kMasks && x.bias != nullptr) {
        if (!kModifies) scale_all(weights, by.scale);
        visible = add_biases_of_pairs<kRows>(s, x.bias, b, head, query + own_query, own_key, visible, weight);
      }
#pragma unroll
      for (int j = 0; j < kFragments; ++j) {
        const float2 log_sums = of_two(moving.log_sums, j);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          weight(j, i, 0) = weight(j, i, 0) * by.factor - log_sums.x;
          weight(j, i, 1) = weight(j, i, 1) * by.factor - log_sums.y;
        }
      }
      find_weights<kMasks>(by.is_sigmoid, weights);
      if (kMasks && x.prepared.shares != nullptr) {
#pragma unroll
        for (int j = 0; j < kFragments; ++j) {
          const float2 shares = of_two(moving.shares, j);
#pragma unroll
          for (int i = 0; i < kRows; ++i) weight(j, i, 0) *= shares.x, weight(j, i, 1) *= shares.y;
        }
      }
      unsigned real = kAllSeen;  // bits of the queries that see any key
      if (!is_whole) {
        for_each_pair_without<kRows>(visible, [&](int j, int i, int c) { weight(j, i, c) = 0; });
        real = 0;
#pragma unroll
        for (int j = 0; j < kFragments; ++j) {
          const float2 log_sums = of_two(moving.log_sums, j);
          real |= ((log_sums.x != -kNothing ? 1u : 0u) | (log_sums.y != -kNothing ? 2u : 0u)) << 2 * j;
        }
      }
      if (by.drops) for_each_pair_without<kRows>(kept, [&](int j, int i, int c) { weight(j, i, c) *= -1; });
      if constexpr (kValues) {
        float kept_weights[kRowTiles][kFragments][4];
#pragma unroll
        for (int n = 0; n < kRowTiles * kFragments * 4; ++n) {
          const int r = n / (kFragments * 4), j = n / 4 % kFragments;
          kept_weights[r][j][n % 4] = kMasks && weights[r][j][n % 4] < 0 ? 0.0f : weights[r][j][n % 4];
        }
        add_seen_products<kWidth>(dvalues, kept_weights, summed_rows<kWidth>(moving.rows[1] + at * kRowSize),
                                  real);
      }
      if constexpr (kKeys) {
        if (!kModifies) find_dweights();
        multiply_weights(by.is_sigmoid, is_whole && !kMasks, weights, dscores);
        add_seen_products<kWidth>(dkeys, dscores, summed_rows<kWidth>(moving.rows[0] + at * kRowSize), real);
      }
    }
    if (kMasks && ++tile > last) tile = first, ++head;  // needed by masks, dropout and modifiers alone
    if (Block::kStages == 2) {
      stage = 1 - stage;
    } else if (left > 1) {
      __syncthreads();
      load(0);
    }
  }
  copy_async_wait<0>();

  const KeyPlace place = place_of_keys<Block::kOwn>(s);
  const int row = place.key + anew(own_warp()) * kRowTiles * 16, rows = all_keys - row;
  if constexpr (kKeys)
    put_sums<kWidth>(x.dkey, s.key.at(place.b, row, place.group), s.key.row, rows, s.key_width,
                     static_cast<float>(s.scale), dkeys);
  if constexpr (kValues)
    put_sums<kWidth>(x.dvalue, s.value.at(place.b, row, place.group), s.value.row, rows, s.value_width,
                     by.kept_scale, dvalues);
}

template <int kWidth, bool kKeys, bool kValues, class T>
void run(Cuda on, const char* name, const AttentionShape& s, const MmaGradient<T>& x) {
  using Block = BackwardBlock<T, kWidth>;
  const Index blocks = s.batch * s.groups * tiles_of(s.keys, Block::kOwn);
  with_options(options_of(s, x), [&](auto options) {
    launch(on, name, attention_mma_dkey_kernel<T, kWidth, decltype(options)::value, kKeys, kValues>,
           {blocks, Block::kThreads, sizeof(BackwardShared<T, kWidth>)}, s, x);
  });
}

}  // namespace

template <class T>
void attention_mma_dkey(Cuda on, const AttentionShape& s, const MmaGradient<T>& x) {
  with_width<T>(s, [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    if constexpr (kWidth < 256) {
      run<kWidth, true, true>(on, "attention_mma_dkey", s, x);
    } else {  // the sums of one gradient fill the registers
      if (x.dkey) run<kWidth, true, false>(on, "attention_mma_dkey", s, x);
      if (x.dvalue) run<kWidth, false, true>(on, "attention_mma_dvalue", s, x);
    }
  });
}

template void attention_mma_dkey(Cuda, const AttentionShape&, const MmaGradient<BFloat16>&);
template void attention_mma_dkey(Cuda, const AttentionShape&, const MmaGradient<float>&);

}  // namespace tapeformer::kernels
