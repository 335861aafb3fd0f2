#include <tapeformer/autograd/kernels/cuda/attention/hopper/backward_loads.h>
#include <tapeformer/autograd/kernels/cuda/pack.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr int kThreads = 3 * kWarpgroup, kLoaderRegisters = 40, kConsumerRegisters = 232;
constexpr int kOwn = 1, kBoth = 3;  // named barriers

/// Clears a step's rows that are in no visible pair: they may be NaN, and are multiplied by 0.
template <int kWidth, bool kOfKeys>
__device__ void clear_unseen(const BackwardCase& c, const Work& work, int first, char* tiles) {
  constexpr int kPieces = 2 * kWidth * 2 / 16;  // in the rows of both tiles
  using Tiles = BackwardTiles<kWidth>;
  const int thread = static_cast<int>(anew(threadIdx.x) - kWarpgroup), row = thread % kStepRows;
  HopperPlace step = work.place;
  step.query = first;
  const Span own = range_of(c.sizes, step, row);
  const bool is_used =
      kOfKeys ? own.from < own.to : is_seen(c.sizes, work.place, work.span, kOwnRows, first + row);
  if (!is_used) {
    for (int piece = thread / kStepRows; piece < kPieces; piece += kConsumers / kStepRows)
      *reinterpret_cast<uint4*>(tiles + piece / 8 * Tiles::kStepBox + row * kBoxRowBytes + piece % 8 * 16) =
          make_uint4(0, 0, 0, 0);
  }
  publish_to_copies();
  meet_at(kBoth, kConsumers);
}

/// Replaces one of a warpgroup's own two tiles in shared memory by its gradient. `tile` is its first row.
template <int kWidth, int kSums>
__device__ void stage_gradient(const Gradient& gradient, const HopperPlace& first, int rows,
                               float (&sums)[kSums], char* tile) {
  const HeadStrides& strides = gradient.strides;
  const int thread = static_cast<int>(anew(threadIdx.x) % kWarpgroup), lane = thread % kWarp;
  const int own_row = thread / kWarp * 16 + lane / 4, own_column = lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums[i] = __fmul_rn(gradient.factor, sums[i]);
  if (gradient.to.add) {
    const BFloat16* before = gradient.to.to + first.b * strides.batch + first.head * strides.head +
                             (first.query + own_row) * strides.row + own_column;
#pragma unroll
    for (int i = 0; i < kSums; i += 2) {
      const int row = i % 4 / 2 * 8, column = i / 4 * 8;
      const bool is_there = own_row + row < rows && own_column + column < gradient.width;
      const unsigned pair =
          is_there ? *reinterpret_cast<const unsigned*>(before + row * strides.row + column) : 0u;
      sums[i] += low_bf16(pair), sums[i + 1] += high_bf16(pair);
    }
  }
#pragma unroll
  for (int i = 0; i < kSums; i += 2) {
    const int row = own_row + i % 4 / 2 * 8, column = i / 4 * 8;
    *reinterpret_cast<unsigned*>(tile + column / kBoxColumns * BackwardTiles<kWidth>::kOwnBox +
                                 place_in_box(row, column % kBoxColumns) + lane % 4 * 4) =
        pack_bf16(sums[i], sums[i + 1]);
  }
}

/// For a block's keys: scores^T = keys queries^T, dweights^T = values dy^T, dvalues += weights^T dy, dkeys +=
/// dscores^T queries. For its queries: scores and dweights untransposed, dqueries += dscores keys. This is
/// the block's n-th tile, with `i` steps before its own; returns their number with its own.
/// Source:  Dao 2023, arXiv:2307.08691, algorithm 2
template <int kWidth, bool kOfKeys, bool kDrops>
__device__ int sum_gradients(const BackwardCase& c, const BackwardTiles<kWidth, kDrops>& tiles, int n, int i,
                             const CUtensorMap* dfirst, const CUtensorMap* dsecond, float kept_scale) {
  using Tiles = BackwardTiles<kWidth, kDrops>;
  constexpr int kPairs = kStepRows / 2, kSums = kWidth / 2, kSteps = kStepRows / 16;
  const int group = static_cast<int>(threadIdx.x / kWarpgroup) - 1;
  const int thread = static_cast<int>(threadIdx.x % kWarpgroup), lane = thread % kWarp;
  const int row = group * kGroupRows + thread / kWarp * 16 + lane / 4, column = lane % 4 * 2;
  wait(tiles.own_there(n), Tiles::own_parity(n));
  const Work& work = *tiles.work(n);  // not in registers
  const HopperPlace& place = work.place;
  struct {
    int from[2], to[2];
    float log_sum[2], delta[2];
  } own = {};  // of this thread's own two queries
  if constexpr (!kOfKeys) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int t = place.query + row + 8 * h, of_head = (c.sizes.queries + kGroupRows - 1) / kGroupRows;
      own.log_sum[h] = INFINITY;
      if (t >= c.sizes.queries) continue;
      const QueryFacts& facts =
          c.facts[(Index{place.b} * c.sizes.heads + place.head) * of_head + t / kGroupRows];
      own.from[h] = facts.from[t % kGroupRows], own.to[h] = facts.to[t % kGroupRows];
      own.log_sum[h] = facts.log_sum[t % kGroupRows], own.delta[h] = facts.delta[t % kGroupRows];
    }
  }
  const std::uint64_t first = matrix_at(tiles.own(n) + group * kGroupRows * kBoxRowBytes, 16, kSwizzleBytes);
  float sums[kSums] = {}, of_values[kOfKeys ? kSums : 1] = {}, scores[kPairs], slopes[kPairs];
  unsigned weights[kSteps][4], dscores[kSteps][4];
  const auto multiply_own = [&](float(&into)[kPairs], int which, int stage) {
    const std::uint64_t step = matrix_at(tiles.tile(stage, which), 16, kSwizzleBytes);
#pragma unroll
    for (int k = 0; k < kWidth / 16; ++k)
      wgmma(into, moved(first, which * Tiles::kOwnBytes + k / 4 * Tiles::kOwnBox + k % 4 * 32),
            moved(step, k / 4 * Tiles::kStepBox + k % 4 * 32), k > 0);
    wgmma_commit();
  };
  const auto add_products = [&](float(&into)[kSums], const unsigned(&factors)[kSteps][4], char* tile) {
    const std::uint64_t step = matrix_at(tile, Tiles::kStepBox, kSwizzleBytes);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) wgmma(into, factors[k], moved(step, k * 16 * kBoxRowBytes), true);
  };
  const auto add_step = [&](int stage) {
    if constexpr (kOfKeys) add_products(of_values, weights, tiles.tile(stage, 1));
    add_products(sums, dscores, tiles.tile(stage, 0));
    wgmma_commit();
  };
  const auto hold_sums = [&] { hold(weights), hold(dscores), hold(sums), hold(of_values); };
  const auto pack = [](const float(&from)[kPairs], unsigned(&to)[kSteps][4]) {
#pragma unroll
    for (int j = 0; j < kPairs / 2; ++j) to[j / 4][j % 4] = pack_bf16(from[2 * j], from[2 * j + 1]);
  };
  // The values of a step's queries in this thread's columns.
  const auto read = [&](const auto* of_step, auto(&into)[kPairs / 2]) {
    struct alignas(8) Pair {
      std::remove_reference_t<decltype(into[0])> first, second;
    };
#pragma unroll
    for (int k = 0; kOfKeys && k < kPairs / 2; k += 2) {
      const Pair pair = *reinterpret_cast<const Pair*>(of_step + 4 * k + column);
      into[k] = pair.first, into[k + 1] = pair.second;
    }
  };
  // The value for the query of scores[j]: of those that are read, or of this thread's own.
  const auto of_query = [](const auto(&of_step)[kPairs / 2], const auto(&of_own)[2], int j) {
    if constexpr (kOfKeys) {
      return of_step[j / 4 * 2 + j % 2];
    } else {
      return of_own[j % 4 / 2];
    }
  };
  const auto mask_weights = [&](const Step& step, const QueryFacts& facts) {
    int from[kPairs / 2], to[kPairs / 2];
    read(facts.from, from), read(facts.to, to);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int key = kOfKeys ? place.query + row + j % 4 / 2 * 8 : step.row + j / 4 * 8 + column + j % 2;
      if (key < of_query(from, own.from, j) || key >= of_query(to, own.to, j)) scores[j] = 0.0f;
    }
  };
  const auto await_step = [&] {
    const int stage = i % Tiles::kStages;
    wait(tiles.there(stage), Tiles::parity(i));
    const Step step = *tiles.step(stage);
    if (!step.is_clean) clear_unseen<kWidth, kOfKeys>(c, work, step.row, tiles.tile(stage, 0));
    return step;
  };
  const auto release = [&](int stage) {
    __syncwarp();  // all lanes have read what is there
    if (lane == 0) arrive(tiles.read(stage));
  };
  const auto multiply_step = [&](int stage) {
    multiply_own(scores, 0, stage);
    multiply_own(slopes, 1, stage);
  };
  // Called after multiply_step() and then `others` more groups of products.
  const auto find_factors = [&](const Step& step, int stage, auto others) {
    const QueryFacts& facts = *tiles.facts(stage);
    float log_sum[kPairs / 2], delta[kPairs / 2];
    read(facts.log_sum, log_sum);
    wgmma_wait<others + 1>();
    hold(scores);
#pragma unroll
    for (int j = 0; j < kPairs; ++j)
      scores[j] = exp2_approx(fmaf(scores[j], c.sizes.factor, -of_query(log_sum, own.log_sum, j)));
    if (!step.is_whole) mask_weights(step, facts);
    read(facts.delta, delta);
    // Volatile: each test of the bits comes from a word read for it, or their results would fill registers.
    const auto read_kept = [&] {
      return kDrops ? *const_cast<volatile unsigned*>(tiles.kept(stage) + threadIdx.x - kWarpgroup) : 0u;
    };
    const unsigned kept = read_kept();
    wgmma_wait<others>();
    hold(slopes);
    const auto slope = [&](int j) {
      const float own_delta = of_query(delta, own.delta, j);
      if (!kDrops) return slopes[j] - own_delta;
      return fmaf(kept_scale, (kept >> j & 1u) != 0 ? slopes[j] : 0.0f, -own_delta);
    };
#pragma unroll
    for (int j = 0; j < kPairs; ++j) slopes[j] = scores[j] * slope(j);
    if (!step.is_whole) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) slopes[j] = scores[j] != 0.0f ? slopes[j] : 0.0f;  // else maybe NaN
    }
    if constexpr (kOfKeys && kDrops) {
      const unsigned of_weights = read_kept();
#pragma unroll
      for (int j = 0; j < kPairs; ++j) scores[j] = (of_weights >> j & 1u) != 0 ? scores[j] : 0.0f;
    }
  };

  // The last products of a step run during the exponentials of the next, where there are registers for that.
  constexpr bool kAhead = !kOfKeys || kWidth <= 64;
  Step step = await_step();
  if (step.row >= 0) {
    wgmma_fence();
    multiply_step(i % Tiles::kStages);
    find_factors(step, i % Tiles::kStages, std::integral_constant<int, 0>());
    while (true) {
      const int before = i++ % Tiles::kStages, stage = i % Tiles::kStages;
      pack(scores, weights), pack(slopes, dscores);
      step = await_step();
      hold_sums();
      if (kAhead && step.row >= 0) {
        wgmma_fence();
        multiply_step(stage);
        add_step(before);
        find_factors(step, stage, std::integral_constant<int, 1>());
      } else {
        wgmma_fence();
        add_step(before);
      }
      wgmma_wait<0>();
      hold_sums();
      release(before);
      if (step.row < 0) break;
      if constexpr (!kAhead) {
        wgmma_fence();
        multiply_step(stage);
        find_factors(step, stage, std::integral_constant<int, 0>());
      }
    }
  }
  release(i % Tiles::kStages);

  const HopperPlace own_rows{place.b, kOfKeys ? place.group : place.head, 0,
                             place.query + group * kGroupRows};
  const int rows = (kOfKeys ? c.sizes.keys : c.sizes.queries) - own_rows.query;
  char* const tile = tiles.own(n) + group * kGroupRows * kBoxRowBytes;
  meet_at(kOwn + group, kWarpgroup);  // no warp multiplies its own tiles any more
  if (c.gradients[0].to) stage_gradient<kWidth>(c.gradients[0], own_rows, rows, sums, tile);
  if constexpr (kOfKeys) {
    if (c.gradients[1].to)
      stage_gradient<kWidth>(c.gradients[1], own_rows, rows, of_values, tile + Tiles::kOwnBytes);
  }
  publish_to_copies();
  meet_at(kOwn + group, kWarpgroup);
  if (thread != 0) return i + 1;
  for (int box = 0; box < (kOfKeys ? 2 : 1) * Tiles::kBoxes; ++box) {
    const int which = box / Tiles::kBoxes;
    if (c.gradients[which].to)
      store_box(which == 0 ? dfirst : dsecond, tile + box * Tiles::kOwnBox, box % Tiles::kBoxes * kBoxColumns,
                own_rows.query, own_rows.head, own_rows.b);
  }
  finish_stores();
  arrive(tiles.own_read(n));
  return i + 1;
}

/// At most one block for each multiprocessor, which works off its share of the tiles. The gradients do not
/// depend on which block has which tile.
template <int kWidth, bool kOfKeys, bool kDrops>
__global__ void __launch_bounds__(kThreads, 1)
    hopper_attention_backward_kernel(BackwardCase c, TileOrder order,
                                     const __grid_constant__ CUtensorMap own_first,
                                     const __grid_constant__ CUtensorMap own_second,
                                     const __grid_constant__ CUtensorMap step_first,
                                     const __grid_constant__ CUtensorMap step_second,
                                     const __grid_constant__ CUtensorMap dfirst,
                                     const __grid_constant__ CUtensorMap dsecond, KeptWeights dropout) {
  using Tiles = BackwardTiles<kWidth, kDrops>;
  const Tiles tiles(dynamic_shared<char>());
  if (threadIdx.x == 0) {
    for (int own = 0; own < Tiles::kOwns; ++own) {
      init_barrier(tiles.own_there(own), 1);
      init_barrier(tiles.own_read(own), kConsumers / kWarpgroup);
    }
    for (int stage = 0; stage < Tiles::kStages; ++stage) {
      init_barrier(tiles.there(stage), 1 + kWarp);  // the lanes that load, and once more for the bytes
      init_barrier(tiles.read(stage), kConsumers / kWarp);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    give_up_registers<kLoaderRegisters>();
    if (threadIdx.x < kWarp)
      load_tiles<kWidth, kOfKeys>(c, order, tiles, {{&own_first, &own_second}, {&step_first, &step_second}},
                                  dropout);
  } else {
    take_registers<kConsumerRegisters>();
    for (int n = 0, i = 0; own_position(n) < order.size(); ++n)
      i = sum_gradients<kWidth, kOfKeys>(c, tiles, n, i, &dfirst, &dsecond, dropout.scale);
  }
}

template <int kWidth, bool kDrops>
void run(Cuda on, const AttentionShape& s, const AttentionOperands<BFloat16>& x, const BFloat16* y,
         const float* log_sum, const BFloat16* dy, const AttentionGradients<BFloat16>& gradients,
         const HopperSchedule& schedule) {
  using Tiles = BackwardTiles<kWidth, kDrops>;
  const Scratch<QueryFacts> facts(on, s.batch * s.heads * tiles_of(s.queries, kGroupRows));
  const Spans spans(on, s);
  BackwardCase c{
      case_of(s, &spans, const_cast<float*>(log_sum)), static_cast<int>(s.groups), facts.data(), {}};
  find_query_facts(on, c.sizes, s, y, dy, facts.data());
  const Dropout dropout(on, c.sizes, s, gradients.dquery.to != nullptr, gradients.dkey || gradients.dvalue);
  const auto queries = [&](const BFloat16* from, int box) {
    return box_map(from, s.query, s.batch, s.queries, s.heads, s.key_width, box);
  };
  const auto dys = [&](int box) {
    return box_map(dy, output_strides(s), s.batch, s.queries, s.heads, s.value_width, box);
  };
  const auto keys = [&](const BFloat16* from, int box) {
    return box_map(from, s.key, s.batch, s.keys, s.groups, s.key_width, box);
  };
  const auto values = [&](const BFloat16* from, int box) {
    return box_map(from, s.value, s.batch, s.keys, s.groups, s.value_width, box);
  };

  const auto launch_in = [&](const TileOrder& order, const char* name, auto kernel, const auto&... maps) {
    const int blocks = std::min(
        {order.size(), schedule.most_blocks, cuda::device_state(on.device).properties.multiProcessorCount});
    launch(on, name, kernel, {blocks, kThreads, Tiles::kBytes}, c, order, maps...);
  };
  const auto scale = static_cast<float>(s.scale);
  const auto key_width = static_cast<int>(s.key_width), value_width = static_cast<int>(s.value_width);
  if (gradients.dkey || gradients.dvalue) {
    c.gradients[0] = {gradients.dkey, s.key, key_width, scale};
    c.gradients[1] = {gradients.dvalue, s.value, value_width,
                      kDrops ? static_cast<float>(s.kept_scale) : 1.0f};
    AttentionShape of_keys = s;
    of_keys.queries = s.keys, of_keys.keys = s.queries, of_keys.heads = s.groups, of_keys.groups = s.heads;
    launch_in(order_of(of_keys, kOwnRows, schedule.cached_bytes), "hopper_attention_dkey",
              hopper_attention_backward_kernel<kWidth, true, kDrops>, keys(x.key, kOwnRows),
              values(x.value, kOwnRows), queries(x.query, kStepRows), dys(kStepRows),
              keys(gradients.dkey ? gradients.dkey.to : x.key, kGroupRows),
              values(gradients.dvalue ? gradients.dvalue.to : x.value, kGroupRows), dropout.of_keys());
  }
  if (gradients.dquery) {
    c.gradients[0] = {gradients.dquery, s.query, key_width, scale};
    const CUtensorMap dquery = queries(gradients.dquery.to, kGroupRows);
    launch_in(order_of(s, kOwnRows, schedule.cached_bytes), "hopper_attention_dquery",
              hopper_attention_backward_kernel<kWidth, false, kDrops>, queries(x.query, kOwnRows),
              dys(kOwnRows), keys(x.key, kStepRows), values(x.value, kStepRows), dquery, dquery,
              dropout.of_queries());
  }
}

}  // namespace

bool hopper_attention_backward(Cuda on, const AttentionShape& s, const AttentionOperands<BFloat16>& x,
                               const BFloat16* y, const float* log_sum, const BFloat16* dy,
                               const AttentionGradients<BFloat16>& to, const HopperSchedule& schedule) {
  const Index width = std::max(s.key_width, s.value_width);
  if (width > 128 || !hopper_takes(on, s, x, dy)) return false;
  if (!are_packed(y, to.dquery.to, to.dkey.to, to.dvalue.to)) return false;
  const auto run_for = [&](auto drops) {
    (width <= 64 ? run<64, drops> : run<128, drops>)(on, s, x, y, log_sum, dy, to, schedule);
  };
  s.drops ? run_for(std::true_type()) : run_for(std::false_type());
  return true;
}

}  // namespace tapeformer::kernels
