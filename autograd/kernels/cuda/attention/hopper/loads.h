#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/hopper/hopper.h>

/// The work of a block of the Hopper forward kernel, and the thread that loads it.
namespace tapeformer::kernels {

/// Two warpgroups of a block have 64 queries each; one thread of a third one loads their tiles.
constexpr int kQueries = 2 * kGroupRows;

/// A block's shared memory, for heads of at most kWidth columns. Tiles are consecutive boxes of 64 columns;
/// the keys and the values have kStages tiles each. Where there is room the results have their own, so that
/// the next queries can come while they are written; else they take that of the queries.
template <int kWidth>
struct ForwardTiles {
  static constexpr int kKeys = kWidth > 128 ? 64 : 128, kStages = kWidth > 64 ? 2 : 4, kBoxes = kWidth / 64;
  static constexpr int kQueryBox = kQueries * kBoxRowBytes, kKeyBox = kKeys * kBoxRowBytes;
  static constexpr int kQueryBytes = kBoxes * kQueryBox, kKeyBytes = kBoxes * kKeyBox;
  static constexpr bool kHasResults = kWidth <= 128;
  static constexpr int kTiles = (kHasResults ? 2 : 1) * kQueryBytes + 2 * kStages * kKeyBytes;
  static constexpr int kBarriers = 2 + 4 * kStages;
  static constexpr int kBytes = kSwizzleBytes + kTiles + 8 * kBarriers + 2 * static_cast<int>(sizeof(Work));

  __device__ explicit ForwardTiles(char* shared) : queries(aligned_tile(shared)) {}
  __device__ char* keys(int stage) const { return queries + kQueryBytes + stage * kKeyBytes; }
  __device__ char* values(int stage) const { return keys(kStages + stage); }
  __device__ char* results() const { return kHasResults ? keys(2 * kStages) : queries; }
  __device__ std::uint64_t* queries_there() const {
    return reinterpret_cast<std::uint64_t*>(queries + kTiles);
  }
  __device__ std::uint64_t* queries_read() const { return queries_there() + 1; }
  __device__ std::uint64_t* keys_there(int stage) const { return queries_there() + 2 + stage; }
  __device__ std::uint64_t* values_there(int stage) const { return keys_there(kStages + stage); }
  __device__ std::uint64_t* keys_read(int stage) const { return keys_there(2 * kStages + stage); }
  __device__ std::uint64_t* values_read(int stage) const { return keys_there(3 * kStages + stage); }
  /// The work on the block's n-th tile of queries; there when its queries are.
  __device__ Work* work(int n) const { return reinterpret_cast<Work*>(queries_there() + kBarriers) + n % 2; }

  char* queries;
};

template <int kWidth>
__device__ void make_barriers(const ForwardTiles<kWidth>& tiles) {
  using Tiles = ForwardTiles<kWidth>;
  init_barrier(tiles.queries_there(), 1);
  init_barrier(tiles.queries_read(), Tiles::kHasResults ? kConsumers / kWarp : kConsumers / kWarpgroup);
  for (int stage = 0; stage < Tiles::kStages; ++stage) {
    init_barrier(tiles.keys_there(stage), 1);
    init_barrier(tiles.values_there(stage), 1);
    init_barrier(tiles.keys_read(stage), kConsumers / kWarp);
    init_barrier(tiles.values_read(stage), kConsumers / kWarp);
  }
  publish_barriers();
}

struct ForwardSources {
  const CUtensorMap *query, *key, *value;
};

/// Loads keys or values of the span's i-th tile, which is the block's `at`-th, when those kStages tiles
/// before it have been read.
template <int kWidth, bool kOfValues>
__device__ void load_tile(const ForwardTiles<kWidth>& tiles, const Work& work, int i, int at,
                          const CUtensorMap* map) {
  using Tiles = ForwardTiles<kWidth>;
  const int stage = at % Tiles::kStages, row = (work.span.from / Tiles::kKeys + i) * Tiles::kKeys;
  char* const to = kOfValues ? tiles.values(stage) : tiles.keys(stage);
  std::uint64_t* const there = kOfValues ? tiles.values_there(stage) : tiles.keys_there(stage);
  wait(kOfValues ? tiles.values_read(stage) : tiles.keys_read(stage),
       (static_cast<unsigned>(at / Tiles::kStages) & 1u) ^ 1u);
  arrive_expecting(there, Tiles::kKeyBytes);
  for (int box = 0; box < Tiles::kBoxes; ++box)
    load_box(to + box * Tiles::kKeyBox, map, there, box * kBoxColumns, row, work.place.group, work.place.b);
}

/// Loads what the products of the block's n-th tile of queries begin with; `at` is the number of the block's
/// tiles of keys before it. The keys come first: they do not wait until the queries before have been read.
template <int kWidth>
__device__ void begin_loads(const ForwardCase& c, const TileOrder& order, const ForwardTiles<kWidth>& tiles,
                            const ForwardSources& from, int n, int at) {
  using Tiles = ForwardTiles<kWidth>;
  const Work work = work_at(c, order, own_position(n));
  if (tiles_between(work.span, Tiles::kKeys) > 0) load_tile<kWidth, false>(tiles, work, 0, at, from.key);
  wait(tiles.queries_read(), (static_cast<unsigned>(n) & 1u) ^ 1u);
  *tiles.work(n) = work;
  arrive_expecting(tiles.queries_there(), Tiles::kQueryBytes);
  for (int box = 0; box < Tiles::kBoxes; ++box)
    load_box(tiles.queries + box * Tiles::kQueryBox, from.query, tiles.queries_there(), box * kBoxColumns,
             work.place.query, work.place.head, work.place.b);
}

/// Loads everything of all tiles of this block, after begin_loads() of the first.
template <int kWidth>
__device__ void load_all(const ForwardCase& c, const TileOrder& order, const ForwardTiles<kWidth>& tiles,
                         const ForwardSources& from) {
  int at = 0;
  for (int n = 0;;) {
    const Work& work = *tiles.work(n);
    const int count = tiles_between(work.span, ForwardTiles<kWidth>::kKeys);
    for (int i = 0; i < count; ++i) {
      if (i > 0) load_tile<kWidth, false>(tiles, work, i, at + i, from.key);
      load_tile<kWidth, true>(tiles, work, i, at + i, from.value);
    }
    at += count, ++n;
    if (own_position(n) >= order.size()) return;
    begin_loads(c, order, tiles, from, n, at);
  }
}

}  // namespace tapeformer::kernels
