#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/hopper/order.h>
#include <tapeformer/autograd/kernels/cuda/attention/modifiers.h>
#include <tapeformer/autograd/kernels/cuda/hopper.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>

/// A block's place in the Hopper kernels, and what they know about its queries.
namespace tapeformer::kernels {

constexpr int kGroupRows = 64;              // of a warpgroup's products
constexpr int kConsumers = 2 * kWarpgroup;  // threads of a block that multiply

/// The keys from the first to the last that a tile's queries see.
struct Span {
  int from, to;
  int all_from, all_to;  // keys that all of them see
  bool is_whole;         // each key of the span is seen by some of them
};

/// The parts of an AttentionShape that the kernels need, in 32 bits.
struct ForwardCase {
  int queries, keys, heads, heads_per_group;
  const std::int32_t *key_from, *key_to;
  const Span* spans;  // [B, tiles of kGroupRows queries]; nullptr if all queries see all keys
  const Span*
      joint;  // [B, groups of kWarp tiles]: the first key to the last; nullptr for one group, or no spans
  float scale, factor;  // of the scores; times log2(e)
  float* log_sum;
  const float* sinks;  // [H]; nullptr for none
};

/// The spans of a case: queues finding them.
class Spans {
 public:
  Spans(Cuda on, const AttentionShape& shape);
  const Span* data() const { return has_ranges_ ? memory_.data() : nullptr; }
  const Span* joint() const { return joint_size_ > 0 ? memory_.data() + size_ : nullptr; }

 private:
  bool has_ranges_;
  Index size_, joint_size_;
  Scratch<Span> memory_;
};

inline ForwardCase case_of(const AttentionShape& s, const Spans* spans, float* log_sum,
                           const float* sinks = nullptr) {
  constexpr double kLog2e = 1.4426950408889634;
  return {static_cast<int>(s.queries),
          static_cast<int>(s.keys),
          static_cast<int>(s.heads),
          static_cast<int>(s.heads / s.groups),
          s.key_from,
          s.key_to,
          spans != nullptr ? spans->data() : nullptr,
          spans != nullptr ? spans->joint() : nullptr,
          static_cast<float>(s.scale),
          static_cast<float>(s.scale * kLog2e),
          log_sum,
          sinks};
}

struct HopperPlace {
  int b, head, group, query;  // the tile's first query
};

__device__ inline int tiles_between(const Span& span, int tile) {
  return span.from < span.to ? (span.to + tile - 1) / tile - span.from / tile : 0;
}
__device__ inline bool all_see(const Span& span, int key, int tile) {
  return key >= span.all_from && key + tile <= span.all_to;
}
/// True if some query sees each key of the tile.
__device__ inline bool sees_all(const ForwardCase& c, const Span& span, int key, int tile) {
  if (all_see(span, key, tile)) return true;
  return span.is_whole && key >= span.from && min(key + tile, c.keys) <= span.to;
}

/// The keys that one query of the tile sees, as `from` and `to`; all if there is no such query.
__device__ inline Span range_of(const ForwardCase& c, const HopperPlace& place, int row) {
  Span range{0, c.keys, 0, c.keys, true};
  const int t = place.query + row;
  if (t >= c.queries) return range;
  const Index at = Index{place.b} * c.queries + t;
  if (c.key_from != nullptr) range.from = max(0, c.key_from[at]);
  if (c.key_to != nullptr) range.to = min(c.keys, c.key_to[at]);
  return range;
}

/// The span of a tile of 2 kGroupRows queries.
__device__ inline Span span_of(const ForwardCase& c, const HopperPlace& place) {
  if (c.spans == nullptr) return {0, c.keys, 0, c.keys, true};
  const int tiles = (c.queries + kGroupRows - 1) / kGroupRows, first = place.query / kGroupRows;
  const Span* const own = c.spans + place.b * tiles + first;
  const Span a = own[0], b = own[first + 1 < tiles ? 1 : 0];
  // Two without gaps that touch leave none.
  const bool is_whole = a.is_whole && b.is_whole && a.from <= b.to && b.from <= a.to;
  return {min(a.from, b.from), max(a.to, b.to), max(a.all_from, b.all_from), min(a.all_to, b.all_to),
          is_whole};
}

/// A block's own tile, and the keys that its queries see.
struct Work {
  HopperPlace place;
  Span span;
};

/// The position of this block's n-th tile. Each call computes it again, see anew().
__device__ inline int own_position(int n) {
  return position_of(n, static_cast<int>(anew(blockIdx.x)), static_cast<int>(gridDim.x));
}
/// The work on a tile of 2 kGroupRows queries.
__device__ inline Work work_at(const ForwardCase& c, const TileOrder& order, int position) {
  const TileOrder::Tile tile = order.at(position);
  const int head = tile.unit % c.heads;
  const HopperPlace place{tile.unit / c.heads, head, head / c.heads_per_group, tile.index * 2 * kGroupRows};
  return {place, span_of(c, place)};
}

/// For a tile of queries: log_sums in base 2, infinity for those that see nothing or are past the last one;
/// sums of dy y; the keys that each sees, none past the last one.
struct alignas(16) QueryFacts {
  float log_sum[kGroupRows], delta[kGroupRows];
  int from[kGroupRows], to[kGroupRows];
};

/// Queues finding the facts of all queries: [B, H, tiles of kGroupRows queries].
void find_query_facts(Cuda on, const ForwardCase& c, const AttentionShape& shape, const BFloat16* y,
                      const BFloat16* dy, QueryFacts* facts);

/// The weights that dropout keeps, for kernels whose blocks have tiles of 2 kGroupRows rows and take steps of
/// kGroupRows of the others: [B, H, tiles, steps, kConsumers]. Bit i of a word is for a thread's i-th score
/// of the step. Where no query of a step sees a key, words may hold anything.
struct KeptWeights {
  unsigned* words;
  int tiles, steps;
  float scale;

  /// The word of a block's first consumer. Steps are kConsumers words apart.
  __device__ unsigned* at(Index unit, int tile, int step) const {
    return words + ((unit * tiles + tile) * steps + step) * kConsumers;
  }
};

/// The kept weights of a case: queues drawing them for blocks of queries, of keys, or both.
class Dropout {
 public:
  Dropout(Cuda on, const ForwardCase& c, const AttentionShape& shape, bool of_queries, bool of_keys);
  KeptWeights of_queries() const { return of_queries_; }
  KeptWeights of_keys() const { return of_keys_; }

 private:
  KeptWeights of_queries_, of_keys_;
  Scratch<unsigned> queries_, keys_;
};

/// Describes a tensor [batch, rows, heads, width] to load_box() and store_box(): boxes of `box_rows` rows and
/// 64 columns of one head. Columns are contiguous.
/// Throws:  DeviceError if the driver refuses
CUtensorMap box_map(const BFloat16* x, const HeadStrides& strides, Index batch, Index rows, Index heads,
                    Index width, int box_rows);
/// True if the device has compute capability 9.0 and the case suits these kernels: no masks but ranges,
/// rows that the copy engine takes; `y` is the result or its gradient, [B, T, H, E].
bool hopper_takes(Cuda on, const AttentionShape& shape, const AttentionOperands<BFloat16>& x,
                  const BFloat16* y);

/// True if a query of the tile sees the key.
__device__ inline bool is_seen(const ForwardCase& c, const HopperPlace& place, const Span& span, int rows,
                               int key) {
  if (span.is_whole) return key >= span.from && key < span.to;
  for (int row = 0; row < min(rows, c.queries - place.query); ++row) {
    const Span range = range_of(c, place, row);
    if (key >= range.from && key < range.to) return true;
  }
  return false;
}

/// The first address from `shared` on at which a tile may begin.
__device__ inline char* aligned_tile(char* shared) {
  return shared + (kSwizzleBytes - shared_address(shared) % kSwizzleBytes) % kSwizzleBytes;
}

/// The offset in bytes of 8 columns of a row, in a box that begins at a multiple of kSwizzleBytes.
__device__ inline int place_in_box(int row, int column) {
  return row * kBoxRowBytes + ((column / 8 ^ row % 8) << 4);
}

/// The matrix that begins this many bytes later.
__device__ inline std::uint64_t moved(std::uint64_t matrix, int bytes) {
  return matrix + static_cast<unsigned>(bytes / 16);
}

}  // namespace tapeformer::kernels
