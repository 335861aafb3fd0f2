#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/hopper/hopper.h>

/// The work of a block of the Hopper backward kernels, and the warp that loads it.
namespace tapeformer::kernels {

/// A block has tiles of 128 keys of a group, or queries of a head, one after the other, and for each loops
/// over tiles of 64 of the others.
constexpr int kOwnRows = 2 * kGroupRows, kStepRows = kGroupRows;

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
  const QueryFacts* facts;  // [B, H, tiles of kGroupRows queries]
  Gradient gradients[2];    // of keys and values, or of queries
};

/// A tile that a block multiplies its own with, of queries or of keys; after the last one comes one without
/// rows.
struct alignas(8) Step {
  int row = -1;          // its first
  bool is_whole = true;  // all queries see all keys
  bool is_clean = true;  // each of its rows is in some visible pair
};

/// A block's shared memory: its own two tiles, and those of the next where there is room, with the work on
/// them; and tiles of kStages steps with the facts of their queries, and the weights that dropout keeps.
template <int kWidth, bool kDrops = false>
struct BackwardTiles {
  static constexpr int kStages = 4, kOwns = kWidth <= 64 ? 2 : 1, kBoxes = kWidth / kBoxColumns;
  static constexpr int kOwnBox = kOwnRows * kBoxRowBytes, kStepBox = kStepRows * kBoxRowBytes;
  static constexpr int kOwnBytes = kBoxes * kOwnBox, kStepBytes = kBoxes * kStepBox;
  static constexpr int kKept = kDrops ? kConsumers : 0;
  static constexpr int kOfStage = static_cast<int>(sizeof(QueryFacts) + sizeof(Step)) + 2 * 8 + 4 * kKept;
  static constexpr int kOfOwn = 2 * kOwnBytes + 2 * 8 + static_cast<int>(sizeof(Work));
  static constexpr int kBytes = kSwizzleBytes + kOwns * kOfOwn + kStages * (2 * kStepBytes + kOfStage);

  __device__ explicit BackwardTiles(char* shared) : begin(aligned_tile(shared)) {}
  __device__ char* own(int n) const { return begin + n % kOwns * 2 * kOwnBytes; }
  __device__ char* tile(int stage, int which) const {
    return begin + kOwns * 2 * kOwnBytes + (2 * stage + which) * kStepBytes;
  }
  __device__ QueryFacts* facts(int stage) const {
    return reinterpret_cast<QueryFacts*>(tile(kStages, 0)) + stage;
  }
  __device__ unsigned* kept(int stage) const {
    return reinterpret_cast<unsigned*>(facts(kStages)) + stage * kKept;
  }
  __device__ Step* step(int stage) const { return reinterpret_cast<Step*>(kept(kStages)) + stage; }
  __device__ std::uint64_t* there(int stage) const {
    return reinterpret_cast<std::uint64_t*>(step(kStages)) + stage;
  }
  __device__ std::uint64_t* read(int stage) const { return there(kStages + stage); }
  __device__ std::uint64_t* own_there(int n) const { return there(2 * kStages + n % kOwns); }
  __device__ std::uint64_t* own_read(int n) const { return there(2 * kStages + kOwns + n % kOwns); }
  __device__ Work* work(int n) const {
    return reinterpret_cast<Work*>(there(2 * (kStages + kOwns))) + n % kOwns;
  }
  static __device__ unsigned parity(int i) { return static_cast<unsigned>(i / kStages) & 1u; }
  static __device__ unsigned own_parity(int n) { return static_cast<unsigned>(n / kOwns) & 1u; }

  char* begin;
};

/// The block's n-th tile. The first keys come where the last queries do: with a causal mask they have the
/// most work.
template <bool kOfKeys>
__device__ Work own_work(const BackwardCase& c, const TileOrder& order, int n) {
  if constexpr (!kOfKeys) return work_at(c.sizes, order, own_position(n));
  const TileOrder::Tile tile = order.at(own_position(n));
  const int group = tile.unit % c.groups;
  return {{tile.unit / c.groups, group * c.sizes.heads_per_group, group,
           (order.tiles - 1 - tile.index) * kOwnRows},
          {0, c.sizes.keys, 0, c.sizes.keys, true}};
}

/// Calls f(head or group, step) for the tiles that a block loops over: of queries for its keys, of keys for
/// its queries. All lanes of a warp call it.
template <bool kOfKeys, class F>
__device__ void for_each_step(const BackwardCase& c, const HopperPlace& place, const Span& span, F&& f) {
  if constexpr (kOfKeys) {
    const int tiles = (c.sizes.queries + kStepRows - 1) / kStepRows, groups = (tiles + kWarp - 1) / kWarp;
    const auto is_near = [&](const Span& seen) {
      return seen.from < place.query + kOwnRows && seen.to > place.query;
    };
    const auto go_through = [&](int head, int begin) {
      const int own = begin + own_lane();
      Span seen = span;
      if (c.sizes.spans != nullptr && own < tiles) seen = c.sizes.spans[place.b * tiles + own];
      const unsigned whole = __ballot_sync(kAllLanes, all_see(seen, place.query, kOwnRows)),
                     clean = __ballot_sync(kAllLanes, seen.is_whole);
      for (unsigned rest = __ballot_sync(kAllLanes, own < tiles && is_near(seen)); rest != 0;
           rest &= rest - 1) {
        const int lane = __ffs(static_cast<int>(rest)) - 1;
        f(head, Step{(begin + lane) * kStepRows, (whole >> lane & 1u) != 0, (clean >> lane & 1u) != 0});
      }
    };
    for (int head = place.head; head < place.head + c.sizes.heads_per_group; ++head) {
      for (int first = 0; first < groups; first += kWarp) {
        const int own = first + own_lane();
        unsigned rest = __ballot_sync(
            kAllLanes,
            own < groups && (c.sizes.joint == nullptr || is_near(c.sizes.joint[place.b * groups + own])));
        for (; rest != 0; rest &= rest - 1)
          go_through(head, (first + __ffs(static_cast<int>(rest)) - 1) * kWarp);
      }
    }
  } else {
    for (int key = span.from / kStepRows * kStepRows; key < span.to; key += kStepRows)
      f(place.group, Step{key, all_see(span, key, kStepRows), sees_all(c.sizes, span, key, kStepRows)});
  }
}

/// The tensors of a block's own tiles, keys and values or queries and dy, and those of its steps.
struct Sources {
  const CUtensorMap *own[2], *step[2];
};

/// Loads all tiles of this block; all lanes of a warp call it.
template <int kWidth, bool kOfKeys, bool kDrops>
__device__ void load_tiles(const BackwardCase& c, const TileOrder& order,
                           const BackwardTiles<kWidth, kDrops>& tiles, const Sources& from,
                           const KeptWeights& dropout) {
  using Tiles = BackwardTiles<kWidth, kDrops>;
  constexpr int kPieces = static_cast<int>(sizeof(QueryFacts) / sizeof(uint4)) / kWarp;  // of each lane
  const int lane = own_lane(), of_head = (c.sizes.queries + kGroupRows - 1) / kGroupRows;
  int i = 0;
  for (int n = 0; own_position(n) < order.size(); ++n) {
    const Work work = own_work<kOfKeys>(c, order, n);
    const HopperPlace& place = work.place;
    wait(tiles.own_read(n), Tiles::own_parity(n) ^ 1u);
    if (lane == 0) {
      *tiles.work(n) = work;
      arrive_expecting(tiles.own_there(n), 2 * Tiles::kOwnBytes);
#pragma unroll
      for (int box = 0; box < 2 * Tiles::kBoxes; ++box)
        load_box(tiles.own(n) + box * Tiles::kOwnBox, from.own[box / Tiles::kBoxes], tiles.own_there(n),
                 box % Tiles::kBoxes * kBoxColumns, place.query, kOfKeys ? place.group : place.head, place.b);
    }
    const auto load = [&](int head, const Step& step) {
      const int stage = i % Tiles::kStages;
      const bool has_facts = kOfKeys && step.row >= 0;
      uint4 facts[kPieces] = {};
      if (has_facts) {
        const QueryFacts* const of_step =
            c.facts + (Index{place.b} * c.sizes.heads + head) * of_head + step.row / kGroupRows;
#pragma unroll
        for (int k = 0; k < kPieces; ++k)
          facts[k] = reinterpret_cast<const uint4*>(of_step)[k * kWarp + lane];
      }
      uint4 kept[2];
      static_assert(sizeof kept * kWarp == kConsumers * sizeof(unsigned), "a warp loads the words of a step");
      if (kDrops && step.row >= 0) {
        const unsigned* const of_step =
            dropout.at(Index{place.b} * c.sizes.heads + (kOfKeys ? head : place.head), place.query / kOwnRows,
                       step.row / kStepRows);
#pragma unroll
        for (int k = 0; k < 2; ++k) kept[k] = reinterpret_cast<const uint4*>(of_step)[k * kWarp + lane];
      }
      wait(tiles.read(stage), Tiles::parity(i) ^ 1u);
      if (lane == 0) {
        *tiles.step(stage) = step;
        arrive_expecting(tiles.there(stage), step.row < 0 ? 0 : 2 * Tiles::kStepBytes);
#pragma unroll
        for (int box = 0; step.row >= 0 && box < 2 * Tiles::kBoxes; ++box)
          load_box(tiles.tile(stage, 0) + box * Tiles::kStepBox, from.step[box / Tiles::kBoxes],
                   tiles.there(stage), box % Tiles::kBoxes * kBoxColumns, step.row, head, place.b);
      }
      if (has_facts) {
#pragma unroll
        for (int k = 0; k < kPieces; ++k)
          reinterpret_cast<uint4*>(tiles.facts(stage))[k * kWarp + lane] = facts[k];
      }
      if (kDrops && step.row >= 0) {
#pragma unroll
        for (int k = 0; k < 2; ++k) reinterpret_cast<uint4*>(tiles.kept(stage))[k * kWarp + lane] = kept[k];
      }
      arrive(tiles.there(stage));
      ++i;
    };
    for_each_step<kOfKeys>(c, place, work.span, load);
    load(0, Step{});
  }
}

}  // namespace tapeformer::kernels
