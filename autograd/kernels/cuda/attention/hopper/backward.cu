#include <tapeformer/autograd/kernels/cuda/attention/hopper/hopper.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

/// A block has 128 keys of one group, or queries of one head, and loops over tiles of 64 of the others.
constexpr int kOwnRows = 2 * kGroupRows, kStepRows = kGroupRows, kConsumers = 2 * kWarpgroup;
constexpr int kThreads = 3 * kWarpgroup, kLoaderRegisters = 40, kConsumerRegisters = 232;
constexpr int kOwn = 1, kBoth = 3;  // named barriers

/// The gradient of one of a block's own two tensors; `to` is nullptr if it is not needed.
struct Gradient {
  Write<BFloat16> to;
  HeadStrides strides;
  int width;
  float factor;  // of the sums
};

struct BackwardCase {
  ForwardCase sizes;
  int groups;
  const QueryFacts* facts;  // [B, H, T]
  Gradient gradients[2];    // of keys and values, or of queries
};

/// A block's shared memory: its own two tiles, tiles of kStages steps, and the facts of a step's queries.
template <int kWidth>
struct BackwardTiles {
  static constexpr int kStages = 4, kBoxes = kWidth / kBoxColumns;
  static constexpr int kOwnBox = kOwnRows * kBoxRowBytes, kStepBox = kStepRows * kBoxRowBytes;
  static constexpr int kOwnBytes = kBoxes * kOwnBox, kStepBytes = kBoxes * kStepBox;
  static constexpr int kFacts = 4 * kStepRows, kFactsBytes = kFacts * static_cast<int>(sizeof(QueryFacts));
  static constexpr int kBytes =
      kSwizzleBytes + 2 * kOwnBytes + 2 * kStages * kStepBytes + kFactsBytes + 8 * (1 + 2 * kStages);

  __device__ explicit BackwardTiles(char* shared) : own(aligned_tile(shared)) {}
  __device__ char* step(int stage, int which) const {
    return own + 2 * kOwnBytes + (2 * stage + which) * kStepBytes;
  }
  /// For each warpgroup, for two steps in turn.
  __device__ QueryFacts* facts(int group, int i) const {
    return reinterpret_cast<QueryFacts*>(step(kStages, 0)) + (2 * group + i % 2) * kStepRows;
  }
  __device__ std::uint64_t* own_there() const {
    return reinterpret_cast<std::uint64_t*>(step(kStages, 0) + kFactsBytes);
  }
  __device__ std::uint64_t* there(int stage) const { return own_there() + 1 + stage; }
  __device__ std::uint64_t* read(int stage) const { return there(kStages + stage); }

  char* own;
};

/// Calls f(i, head, row, span) for the tiles that a block loops over: of queries for its keys, of keys for
/// its queries.
template <bool kOfKeys, class F>
__device__ void for_each_step(const BackwardCase& c, const HopperPlace& place, const Span& span, F&& f) {
  int i = 0;
  if constexpr (kOfKeys) {
    const int tiles = (c.sizes.queries + kStepRows - 1) / kStepRows;
    for (int head = place.head; head < place.head + c.sizes.heads_per_group; ++head) {
      for (int tile = 0; tile < tiles; ++tile) {
        const Span seen = c.sizes.spans == nullptr ? span : c.sizes.spans[place.b * tiles + tile];
        if (seen.from < place.query + kOwnRows && seen.to > place.query) f(i++, head, tile * kStepRows, seen);
      }
    }
  } else {
    for (int key = span.from / kStepRows * kStepRows; key < span.to; key += kStepRows)
      f(i++, place.group, key, span);
  }
}

/// The tensors of a block's own tiles, keys and values or queries and dy, and those of its steps.
struct Sources {
  const CUtensorMap *own[2], *step[2];
};

template <int kWidth, bool kOfKeys>
__device__ void load_tiles(const BackwardCase& c, const BackwardTiles<kWidth>& tiles,
                           const HopperPlace& place, const Span& span, const Sources& from) {
  using Tiles = BackwardTiles<kWidth>;
  for_each_step<kOfKeys>(c, place, span, [&](int i, int head, int row, const Span&) {
    if (i == 0) {
      arrive_expecting(tiles.own_there(), 2 * Tiles::kOwnBytes);
      for (int box = 0; box < 2 * Tiles::kBoxes; ++box)
        load_box(tiles.own + box * Tiles::kOwnBox, from.own[box / Tiles::kBoxes], tiles.own_there(),
                 box % Tiles::kBoxes * kBoxColumns, place.query, kOfKeys ? place.group : place.head, place.b);
    }
    const int stage = i % Tiles::kStages;
    wait(tiles.read(stage), (static_cast<unsigned>(i / Tiles::kStages) & 1u) ^ 1u);
    arrive_expecting(tiles.there(stage), 2 * Tiles::kStepBytes);
    for (int box = 0; box < 2 * Tiles::kBoxes; ++box)
      load_box(tiles.step(stage, 0) + box * Tiles::kStepBox, from.step[box / Tiles::kBoxes],
               tiles.there(stage), box % Tiles::kBoxes * kBoxColumns, row, head, place.b);
  });
}

/// Clears a step's rows that are in no visible pair: they may be NaN, and are multiplied by 0.
template <int kWidth, bool kOfKeys>
__device__ void clear_unseen(const BackwardCase& c, const HopperPlace& place, const Span& span, int first,
                             char* tiles) {
  constexpr int kPieces = 2 * kWidth * 2 / 16;  // in the rows of both tiles
  using Tiles = BackwardTiles<kWidth>;
  const int thread = static_cast<int>(anew(threadIdx.x) - kWarpgroup), row = thread % kStepRows;
  HopperPlace step = place;
  step.query = first;
  const Span own = range_of(c.sizes, step, row);
  const bool is_used = kOfKeys ? own.from < own.to : is_seen(c.sizes, place, span, kOwnRows, first + row);
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
/// dscores^T queries. For its queries: scores and dweights untransposed, dqueries += dscores keys.
/// Source:  Dao 2023, arXiv:2307.08691, algorithm 2
template <int kWidth, bool kOfKeys>
__device__ void sum_gradients(const BackwardCase& c, const BackwardTiles<kWidth>& tiles,
                              const HopperPlace& place, const Span& span, const CUtensorMap* dfirst,
                              const CUtensorMap* dsecond) {
  using Tiles = BackwardTiles<kWidth>;
  constexpr int kPairs = kStepRows / 2, kSums = kWidth / 2, kSteps = kStepRows / 16;
  const int group = static_cast<int>(threadIdx.x / kWarpgroup) - 1;
  const int thread = static_cast<int>(threadIdx.x % kWarpgroup), lane = thread % kWarp;
  const int row = group * kGroupRows + thread / kWarp * 16 + lane / 4, column = lane % 4 * 2;
  const auto facts_of = [&](int head, int t) {
    if (t >= c.sizes.queries) return QueryFacts{INFINITY, 0, 0, 0};
    return c.facts[(Index{place.b} * c.sizes.heads + head) * c.sizes.queries + t];
  };
  QueryFacts own[2];
  if constexpr (!kOfKeys) {
    for (int h = 0; h < 2; ++h) own[h] = facts_of(place.head, place.query + row + 8 * h);
  }
  const std::uint64_t first = matrix_at(tiles.own + group * kGroupRows * kBoxRowBytes, 16, kSwizzleBytes);
  float sums[kSums] = {}, of_values[kOfKeys ? kSums : 1] = {}, scores[kPairs], slopes[kPairs];
  unsigned weights[kSteps][4], dscores[kSteps][4];
  const auto multiply_own = [&](float(&into)[kPairs], int which, int stage) {
    const std::uint64_t step = matrix_at(tiles.step(stage, which), 16, kSwizzleBytes);
#pragma unroll
    for (int k = 0; k < kWidth / 16; ++k)
      wgmma(into, moved(first, which * Tiles::kOwnBytes + k / 4 * Tiles::kOwnBox + k % 4 * 32),
            moved(step, k / 4 * Tiles::kStepBox + k % 4 * 32), k > 0);
    wgmma_commit();
  };
  const auto add_products = [&](float(&into)[kSums], unsigned(&factors)[kSteps][4], char* tile) {
    const std::uint64_t step = matrix_at(tile, Tiles::kStepBox, kSwizzleBytes);
    hold(factors), hold(into);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) wgmma(into, factors[k], moved(step, k * 16 * kBoxRowBytes), true);
    wgmma_commit();
  };
  const auto pack = [](const float(&from)[kPairs], unsigned(&to)[kSteps][4]) {
#pragma unroll
    for (int i = 0; i < kPairs / 2; ++i) to[i / 4][i % 4] = pack_bf16(from[2 * i], from[2 * i + 1]);
  };

  for_each_step<kOfKeys>(c, place, span, [&](int i, int head, int other, const Span& seen) {
    const int stage = i % Tiles::kStages;
    QueryFacts* const facts = tiles.facts(group, i);
    if constexpr (kOfKeys) {
      if (thread < kStepRows) facts[thread] = facts_of(head, other + thread);
      meet_at(kOwn + group, kWarpgroup);
    }
    if (i == 0) wait(tiles.own_there(), 0);
    wait(tiles.there(stage), static_cast<unsigned>(i / Tiles::kStages) & 1u);
    if (kOfKeys ? !seen.is_whole : !sees_all(c.sizes, seen, other, kStepRows))
      clear_unseen<kWidth, kOfKeys>(c, place, seen, other, tiles.step(stage, 0));
    wgmma_fence();
    multiply_own(scores, 0, stage);
    multiply_own(slopes, 1, stage);
    wgmma_wait<1>();
    hold(scores);
    // Without checks where all queries see all keys. Not for keys: two products would be running at a branch,
    // and the registers do not suffice.
    const bool is_whole = !kOfKeys && all_see(seen, other, kStepRows);
    const auto find_weights = [&](auto whole) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const int h = j % 4 / 2, at = j / 4 * 8 + column + j % 2;
        const QueryFacts query = kOfKeys ? facts[at] : own[h];
        const int key = kOfKeys ? place.query + row + 8 * h : other + at;
        const bool is_visible = whole || (key >= query.from && key < query.to);
        scores[j] = is_visible ? exp2_approx(fmaf(scores[j], c.sizes.factor, -query.log_sum)) : 0.0f;
      }
    };
    is_whole ? find_weights(std::true_type{}) : find_weights(std::false_type{});
    if constexpr (kOfKeys) {
      pack(scores, weights);
      add_products(of_values, weights, tiles.step(stage, 1));
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    hold(slopes);
    const auto find_dscores = [&](auto whole) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const float delta = kOfKeys ? facts[j / 4 * 8 + column + j % 2].delta : own[j % 4 / 2].delta;
        slopes[j] = whole || scores[j] != 0.0f ? scores[j] * (slopes[j] - delta) : 0.0f;
      }
    };
    is_whole ? find_dscores(std::true_type{}) : find_dscores(std::false_type{});
    pack(slopes, dscores);
    add_products(sums, dscores, tiles.step(stage, 0));
    wgmma_wait<0>();
    hold(weights), hold(dscores), hold(sums), hold(of_values);
    if (lane == 0) arrive(tiles.read(stage));
  });

  const HopperPlace own_rows{place.b, kOfKeys ? place.group : place.head, 0,
                             place.query + group * kGroupRows};
  const int rows = (kOfKeys ? c.sizes.keys : c.sizes.queries) - own_rows.query;
  char* const tile = tiles.own + group * kGroupRows * kBoxRowBytes;
  meet_at(kOwn + group, kWarpgroup);  // nobody multiplies their own tiles any more
  if (c.gradients[0].to) stage_gradient<kWidth>(c.gradients[0], own_rows, rows, sums, tile);
  if constexpr (kOfKeys) {
    if (c.gradients[1].to)
      stage_gradient<kWidth>(c.gradients[1], own_rows, rows, of_values, tile + Tiles::kOwnBytes);
  }
  publish_to_copies();
  meet_at(kOwn + group, kWarpgroup);
  if (thread != 0) return;
  for (int box = 0; box < (kOfKeys ? 2 : 1) * Tiles::kBoxes; ++box) {
    const int which = box / Tiles::kBoxes;
    if (c.gradients[which].to)
      store_box(which == 0 ? dfirst : dsecond, tile + box * Tiles::kOwnBox, box % Tiles::kBoxes * kBoxColumns,
                own_rows.query, own_rows.head, own_rows.b);
  }
  finish_stores();
}

template <int kWidth, bool kOfKeys>
__global__ void __launch_bounds__(kThreads, 1)
    hopper_attention_backward_kernel(BackwardCase c, const __grid_constant__ CUtensorMap own_first,
                                     const __grid_constant__ CUtensorMap own_second,
                                     const __grid_constant__ CUtensorMap step_first,
                                     const __grid_constant__ CUtensorMap step_second,
                                     const __grid_constant__ CUtensorMap dfirst,
                                     const __grid_constant__ CUtensorMap dsecond) {
  using Tiles = BackwardTiles<kWidth>;
  const Tiles tiles(dynamic_shared<char>());
  HopperPlace place = own_place(c.sizes, kOwnRows);
  Span span{0, c.sizes.keys, 0, c.sizes.keys, true};
  if constexpr (kOfKeys) {
    // The first keys come first: with a causal mask they have the most work.
    const int count = (c.sizes.keys + kOwnRows - 1) / kOwnRows, unit = static_cast<int>(blockIdx.x) / count;
    place.group = unit % c.groups, place.b = unit / c.groups;
    place.head = place.group * c.sizes.heads_per_group;
    place.query = static_cast<int>(blockIdx.x) % count * kOwnRows;
  } else {
    span = span_of(c.sizes, place);
  }
  if (threadIdx.x == 0) {
    init_barrier(tiles.own_there(), 1);
    for (int stage = 0; stage < Tiles::kStages; ++stage) {
      init_barrier(tiles.there(stage), 1);
      init_barrier(tiles.read(stage), kConsumers / kWarp);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    give_up_registers<kLoaderRegisters>();
    if (threadIdx.x == 0)
      load_tiles<kWidth, kOfKeys>(c, tiles, place, span,
                                  {{&own_first, &own_second}, {&step_first, &step_second}});
  } else {
    take_registers<kConsumerRegisters>();
    sum_gradients<kWidth, kOfKeys>(c, tiles, place, span, &dfirst, &dsecond);
  }
}

template <int kWidth>
void run(Cuda on, const AttentionShape& s, const AttentionOperands<BFloat16>& x, const BFloat16* y,
         const float* log_sum, const BFloat16* dy, const AttentionGradients<BFloat16>& gradients) {
  using Tiles = BackwardTiles<kWidth>;
  const Scratch<QueryFacts> facts(on, s.batch * s.heads * s.queries);
  const Spans spans(on, s);
  BackwardCase c{
      case_of(s, spans.data(), const_cast<float*>(log_sum)), static_cast<int>(s.groups), facts.data(), {}};
  find_query_facts(on, c.sizes, s, y, dy, facts.data());
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

  const auto scale = static_cast<float>(s.scale);
  const auto key_width = static_cast<int>(s.key_width), value_width = static_cast<int>(s.value_width);
  if (gradients.dkey || gradients.dvalue) {
    c.gradients[0] = {gradients.dkey, s.key, key_width, scale};
    c.gradients[1] = {gradients.dvalue, s.value, value_width, 1.0f};
    launch(on, "hopper_attention_dkey", hopper_attention_backward_kernel<kWidth, true>,
           {s.batch * s.groups * tiles_of(s.keys, kOwnRows), kThreads, Tiles::kBytes}, c,
           keys(x.key, kOwnRows), values(x.value, kOwnRows), queries(x.query, kStepRows), dys(kStepRows),
           keys(gradients.dkey ? gradients.dkey.to : x.key, kGroupRows),
           values(gradients.dvalue ? gradients.dvalue.to : x.value, kGroupRows));
  }
  if (gradients.dquery) {
    c.gradients[0] = {gradients.dquery, s.query, key_width, scale};
    const CUtensorMap dquery = queries(gradients.dquery.to, kGroupRows);
    launch(on, "hopper_attention_dquery", hopper_attention_backward_kernel<kWidth, false>,
           {s.batch * s.heads * tiles_of(s.queries, kOwnRows), kThreads, Tiles::kBytes}, c,
           queries(x.query, kOwnRows), dys(kOwnRows), keys(x.key, kStepRows), values(x.value, kStepRows),
           dquery, dquery);
  }
}

}  // namespace

bool hopper_attention_backward(Cuda on, const AttentionShape& s, const AttentionOperands<BFloat16>& x,
                               const BFloat16* y, const float* log_sum, const BFloat16* dy,
                               const AttentionGradients<BFloat16>& to) {
  const Index width = std::max(s.key_width, s.value_width);
  if (width > 128 || !hopper_takes(on, s, x, dy)) return false;
  if (reinterpret_cast<std::uintptr_t>(y) % 4 != 0) return false;
  for (const BFloat16* gradient : {to.dquery.to, to.dkey.to, to.dvalue.to}) {
    if (reinterpret_cast<std::uintptr_t>(gradient) % 16 != 0) return false;
  }
  (width <= 64 ? run<64> : run<128>)(on, s, x, y, log_sum, dy, to);
  return true;
}

}  // namespace tapeformer::kernels
