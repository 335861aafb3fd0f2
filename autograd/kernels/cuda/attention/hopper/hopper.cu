#include <tapeformer/autograd/kernels/cuda/attention/hopper/loads.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr int kThreads = kConsumers + kWarpgroup;
constexpr int kLoaderRegisters = 40, kConsumerRegisters = 232;  // of 65536, and 168 at the start
/// Named barriers: a warpgroup's turn to multiply, the threads of one warpgroup, those of both.
constexpr int kTurn = 1, kOwn = 3, kBoth = 5;

/// A consumer thread's two rows, 8 apart, of a tile of queries.
struct OwnRows {
  int from[2], to[2];  // the keys they see
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
};

/// Masks the scores of keys that their rows do not see; `key` is the tile's first.
template <int kScores>
__device__ void leave_out(const OwnRows& rows, int key, float (&scores)[kScores]) {
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
  for (int h = 0; h < 2; ++h) {
    const int begin = rows.from[h] - key - column;
    const auto seen = static_cast<unsigned>(max(rows.to[h] - rows.from[h], 0));
#pragma unroll
    for (int i = 0; i < kScores / 4; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& score = scores[4 * i + 2 * h + j];
        if (static_cast<unsigned>(8 * i + j - begin) >= seen) score = -INFINITY;
      }
    }
  }
}

/// Replaces scores by their exponentials for the largest score so far; `total` is the sum over this thread's
/// columns. Returns the factors of earlier sums in `shrink`.
/// Source:  Milakov and Gimelshein 2018, arXiv:1805.02867
template <int kScores>
__device__ void exponentiate(float factor, OwnRows& rows, float (&scores)[kScores], float (&shrink)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float most = rows.largest[h];
#pragma unroll
    for (int i = 2 * h; i < kScores; i += 4) most = fmaxf(most, fmaxf(scores[i], scores[i + 1]));
    most = warp_largest<4>(most);
    const float shift = most == -INFINITY ? 0.0f : most * factor;
    shrink[h] = exp2_approx(fmaf(rows.largest[h], factor, -shift));
    rows.largest[h] = most;
    float sum = 0;
#pragma unroll
    for (int i = 2 * h; i < kScores; i += 4) {
      scores[i] = exp2_approx(fmaf(scores[i], factor, -shift));
      scores[i + 1] = exp2_approx(fmaf(scores[i + 1], factor, -shift));
      sum += scores[i] + scores[i + 1];
    }
    rows.total[h] = fmaf(rows.total[h], shrink[h], sum);
  }
}

/// Clears values that no query of the tile sees: they may be NaN, and are multiplied by 0.
template <int kWidth>
__device__ void clear_unseen_values(const ForwardCase& c, const Work& work, int key, char* values) {
  using Tiles = ForwardTiles<kWidth>;
  constexpr int kPieces = Tiles::kBoxes * kBoxRowBytes / 16, kParts = kConsumers / Tiles::kKeys;
  const int thread = static_cast<int>(anew(threadIdx.x)) - kWarpgroup, row = thread % Tiles::kKeys;
  if (!is_seen(c, work.place, work.span, kQueries, key + row)) {
    for (int piece = thread / Tiles::kKeys; piece < kPieces; piece += kParts)
      *reinterpret_cast<uint4*>(values + piece / 8 * Tiles::kKeyBox + row * kBoxRowBytes + piece % 8 * 16) =
          make_uint4(0, 0, 0, 0);
  }
  publish_to_copies();
  meet_at(kBoth, kConsumers);
}

/// Writes y and log_sum of 64 queries, through shared memory. Its stores may go on behind it; finish_stores()
/// ends them.
template <bool kDrops, int kWidth, int kOutputs, int kSums>
__device__ void put_rows(const ForwardCase& c, const ForwardTiles<kWidth>& tiles, const HopperPlace& place,
                         const OwnRows& rows, const float (&sums)[kOutputs][kSums], const CUtensorMap* y,
                         float kept_scale) {
  using Tiles = ForwardTiles<kWidth>;
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, lane = thread % kWarp;
  char* const to = tiles.results() + group * kGroupRows * kBoxRowBytes;
  finish_stores();                    // of the tile before
  meet_at(kOwn + group, kWarpgroup);  // no warp needs its contents any more
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = thread / kWarp * 16 + lane / 4 + 8 * h, t = place.query + group * kGroupRows + row;
    float total = warp_sum<4>(rows.total[h]);
    float most = rows.largest[h] * c.scale, factor = 1.0f;
    if (c.sinks != nullptr)
      factor = add_sink(c.sinks[place.head], most, total, [](float exponent) { return expf(exponent); });
    if constexpr (kDrops) factor *= kept_scale;
    factor /= total;
    if (lane % 4 == 0 && t < c.queries)
      c.log_sum[(Index{place.b} * c.heads + place.head) * c.queries + t] = most + logf(total);
#pragma unroll
    for (int output = 0; output < kOutputs; ++output) {
#pragma unroll
      for (int i = 0; i < kSums / 4; ++i) {
        const int column = output * 2 * kSums + 8 * i;
        const float* pair = sums[output] + 4 * i + 2 * h;
        const unsigned packed = total == 0.0f ? 0u : pack_bf16(pair[0] * factor, pair[1] * factor);
        *reinterpret_cast<unsigned*>(to + column / kBoxColumns * Tiles::kQueryBox +
                                     place_in_box(row, column % kBoxColumns) + lane % 4 * 4) = packed;
      }
    }
  }
  publish_to_copies();
  meet_at(kOwn + group, kWarpgroup);
  if (thread != 0) return;
  for (int box = 0; box < Tiles::kBoxes; ++box)
    store_box(y, to + box * Tiles::kQueryBox, box * kBoxColumns, place.query + group * kGroupRows, place.head,
              place.b);
  if constexpr (!Tiles::kHasResults) {
    finish_stores();
    arrive(tiles.queries_read());
  }
}

/// Products of one tile's values run during the exponentials of the next one, and the two warpgroups take
/// turns, so that one multiplies while the other computes exponentials. This is the block's n-th tile of
/// queries, with `begin` tiles of keys before it; returns their number with its own.
/// Source:  Shah et al. 2024, arXiv:2407.08608, algorithm 2
template <int kWidth, bool kDrops>
__device__ int attend(const ForwardCase& c, const ForwardTiles<kWidth>& tiles, int n, int begin,
                      const CUtensorMap* y, const KeptWeights& dropout) {
  using Tiles = ForwardTiles<kWidth>;
  constexpr int kOutputs = kWidth > 128 ? 2 : 1, kSums = kWidth / kOutputs / 2, kSteps = Tiles::kKeys / 16;
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, lane = thread % kWarp;
  wait(tiles.queries_there(), static_cast<unsigned>(n) & 1u);
  const Work& work = *tiles.work(n);  // not in registers
  const int first = work.span.from / Tiles::kKeys - begin;
  const int end = begin + tiles_between(work.span, Tiles::kKeys);
  OwnRows rows;
  for (int h = 0; h < 2; ++h) {
    const Span range = range_of(c, work.place, group * kGroupRows + thread / kWarp * 16 + lane / 4 + 8 * h);
    rows.from[h] = range.from, rows.to[h] = range.to;
  }
  float sums[kOutputs][kSums] = {}, scores[Tiles::kKeys / 2], shrink[2];
  unsigned weights[kSteps][4], kept[Tiles::kKeys / kGroupRows] = {};
  const unsigned* own_kept = nullptr;
  if constexpr (kDrops)
    own_kept = dropout.at(Index{work.place.b} * c.heads + work.place.head, work.place.query / kQueries,
                          first * (Tiles::kKeys / kGroupRows)) +
               threadIdx.x - kWarpgroup;

  const std::uint64_t queries =
      matrix_at(tiles.queries + group * kGroupRows * kBoxRowBytes, 16, kSwizzleBytes);
  const auto multiply_keys = [&](int stage) {
    const std::uint64_t keys = matrix_at(tiles.keys(stage), 16, kSwizzleBytes);
#pragma unroll
    for (int k = 0; k < kWidth / 16; ++k)
      wgmma(scores, moved(queries, k / 4 * Tiles::kQueryBox + k % 4 * 32),
            moved(keys, k / 4 * Tiles::kKeyBox + k % 4 * 32), k > 0);
    wgmma_commit();
  };
  const auto multiply_values = [&](int stage) {
    const std::uint64_t values = matrix_at(tiles.values(stage), Tiles::kKeyBox, kSwizzleBytes);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int output = 0; output < kOutputs; ++output)
        wgmma(sums[output], weights[k], moved(values, output * 2 * Tiles::kKeyBox + k * 16 * kBoxRowBytes),
              true);
    }
    wgmma_commit();
  };
  const auto parity_of = [](int i) { return static_cast<unsigned>(i / Tiles::kStages) & 1u; };
  const auto key_of = [&](int i) { return (first + i) * Tiles::kKeys; };
  const auto find_weights = [&](int i) {
    if (!all_see(work.span, key_of(i), Tiles::kKeys)) leave_out(rows, key_of(i), scores);
    exponentiate(c.factor, rows, scores, shrink);
  };
  // Called long before pack_weights(), which needs it.
  const auto read_kept = [&](int i) {
    if constexpr (kDrops) {
#pragma unroll
      for (int k = 0; k < Tiles::kKeys / kGroupRows; ++k)
        kept[k] = own_kept[Index{i * Tiles::kKeys / kGroupRows + k} * kConsumers];
    }
  };
  const auto pack_weights = [&] {
    const auto weight = [&](int j) {
      return !kDrops || (kept[j / 32] >> j % 32 & 1u) != 0 ? scores[j] : 0.0f;
    };
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int j = 0; j < 4; ++j) weights[k][j] = pack_bf16(weight(8 * k + 2 * j), weight(8 * k + 2 * j + 1));
    }
  };
  const auto await_keys = [&](int i) {
    if (i < end) wait(tiles.keys_there(i % Tiles::kStages), parity_of(i));
  };
  const auto await_values = [&](int i) {
    wait(tiles.values_there(i % Tiles::kStages), parity_of(i));
    if (!sees_all(c, work.span, key_of(i), Tiles::kKeys))
      clear_unseen_values<kWidth>(c, work, key_of(i), tiles.values(i % Tiles::kStages));
  };

  // The next queries may come when the last keys have been multiplied.
  const auto release_keys = [&](int i) {
    if (lane != 0) return;
    arrive(tiles.keys_read(i % Tiles::kStages));
    if (Tiles::kHasResults && i + 1 == end) arrive(tiles.queries_read());
  };

  if (begin < end) {
    read_kept(begin);
    await_keys(begin);
    wgmma_fence();
    multiply_keys(begin % Tiles::kStages);
    wgmma_wait<0>();
    hold(scores);
    release_keys(begin);
    find_weights(begin);
    pack_weights();
    await_keys(begin + 1);
    for (int i = begin + 1; i < end; ++i) {
      const int before = (i - 1) % Tiles::kStages;
      await_values(i - 1);
      read_kept(i);
      meet_at(kTurn + group, kConsumers);
      hold(weights), hold(sums);
      wgmma_fence();
      multiply_keys(i % Tiles::kStages);
      multiply_values(before);
      arrive_at(kTurn + 1 - group, kConsumers);
      wgmma_wait<1>();
      hold(scores);
      release_keys(i);
      find_weights(i);
      hold(scores);
      // The compiler moves exponentials past the wait for the products of values, but not past this branch.
      await_keys(i + 1);
      wgmma_wait<0>();
      hold(weights), hold(sums);
      if (lane == 0) arrive(tiles.values_read(before));
      pack_weights();
#pragma unroll
      for (int output = 0; output < kOutputs; ++output) {
#pragma unroll
        for (int j = 0; j < kSums; ++j) sums[output][j] *= shrink[j % 4 / 2];
      }
    }
    const int last = (end - 1) % Tiles::kStages;
    await_values(end - 1);
    hold(weights), hold(sums);
    wgmma_fence();
    multiply_values(last);
    wgmma_wait<0>();
    hold(sums);
    if (lane == 0) arrive(tiles.values_read(last));
  } else if (Tiles::kHasResults) {
    __syncwarp();  // all have seen that the queries are there
    if (lane == 0) arrive(tiles.queries_read());
  }
  put_rows<kDrops>(c, tiles, work.place, rows, sums, y, dropout.scale);
  return end;
}

/// At most one block for each multiprocessor, which works off its share of the tiles of queries. The result
/// does not depend on which block has which tile.
template <int kWidth, bool kDrops>
__global__ void __launch_bounds__(kThreads, 1)
    hopper_attention_forward_kernel(ForwardCase c, TileOrder order, const __grid_constant__ CUtensorMap query,
                                    const __grid_constant__ CUtensorMap key,
                                    const __grid_constant__ CUtensorMap value,
                                    const __grid_constant__ CUtensorMap y, KeptWeights dropout) {
  const ForwardTiles<kWidth> tiles(dynamic_shared<char>());
  const ForwardSources from{&query, &key, &value};
  if (threadIdx.x == 0) {
    make_barriers(tiles);
    begin_loads(c, order, tiles, from, 0, 0);  // without waiting for the other threads
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    give_up_registers<kLoaderRegisters>();
    if (threadIdx.x == 0) load_all(c, order, tiles, from);
  } else {
    take_registers<kConsumerRegisters>();
    if (threadIdx.x < 2 * kWarpgroup) arrive_at(kTurn, kConsumers);  // theirs is the first turn
    for (int n = 0, begin = 0; own_position(n) < order.size(); ++n)
      begin = attend<kWidth, kDrops>(c, tiles, n, begin, &y, dropout);
    finish_stores();
  }
}

template <int kWidth>
void run(Cuda on, const AttentionShape& s, const ForwardCase& c, const TileOrder& order, int blocks,
         const AttentionOperands<BFloat16>& x, BFloat16* y) {
  using Tiles = ForwardTiles<kWidth>;
  const Dropout dropout(on, c, s, true, false);
  launch(on, "hopper_attention_forward",
         s.drops ? hopper_attention_forward_kernel<kWidth, true>
                 : hopper_attention_forward_kernel<kWidth, false>,
         {blocks, kThreads, Tiles::kBytes}, c, order,
         box_map(x.query, s.query, s.batch, s.queries, s.heads, s.key_width, kQueries),
         box_map(x.key, s.key, s.batch, s.keys, s.groups, s.key_width, Tiles::kKeys),
         box_map(x.value, s.value, s.batch, s.keys, s.groups, s.value_width, Tiles::kKeys),
         box_map(y, output_strides(s), s.batch, s.queries, s.heads, s.value_width, kGroupRows),
         dropout.of_queries());
}

}  // namespace

bool hopper_attention_forward(Cuda on, const AttentionShape& s, const AttentionOperands<BFloat16>& x,
                              BFloat16* y, float* log_sum, const HopperSchedule& schedule) {
  if (!hopper_takes(on, s, x, y)) return false;
  const Index width = std::max(s.key_width, s.value_width);
  const Spans spans(on, s);
  const ForwardCase c = case_of(s, &spans, log_sum, x.sinks);
  const TileOrder order = order_of(s, kQueries, schedule.cached_bytes);
  const int blocks = std::min(
      {order.size(), schedule.most_blocks, cuda::device_state(on.device).properties.multiProcessorCount});
  if (width <= 64)
    run<64>(on, s, c, order, blocks, x, y);
  else if (width <= 128)
    run<128>(on, s, c, order, blocks, x, y);
  else
    run<256>(on, s, c, order, blocks, x, y);
  return true;
}

}  // namespace tapeformer::kernels
