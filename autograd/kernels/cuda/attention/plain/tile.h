#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/modifiers.h>
#include <tapeformer/autograd/kernels/dropout.h>

namespace tapeformer::kernels {

// Shared by both passes of tiled attention on a GPU. A tile of the scores is square, and so are its kBlock
// threads: each has kPairs x kPairs pairs of a query and a key, kSide apart. Queries, keys and values come
// through shared memory in pieces of width kPiece, so that any width needs the same memory. A block sums only
// a part of the output's width; if there are several, each computes the scores again.

constexpr int kSide = 16;
constexpr int kPiece = 32;
static_assert(kSide * kSide == kBlock, "a thread for every place of the square");

/// Sizes by the type of the computation.
template <class W>
constexpr int kPairs = sizeof(W) == 4 ? 4 : 2;
template <class W>
constexpr int kTile = kSide* kPairs<W>;
/// The columns of a piece that one thread sums.
constexpr int kColumns = kPiece / kSide;

template <class W>
using Pairs = W[kPairs<W>][kPairs<W>];
/// Calls f(i, j) for each of this thread's pairs.
template <class W, class F>
__device__ void for_each_pair(F&& f) {
  for (int i = 0; i < kPairs<W>; ++i) {
    for (int j = 0; j < kPairs<W>; ++j) f(i, j);
  }
}

/// A block's shared memory. The rows of pieces are an odd number of values long, so that accesses along them
/// and across them have no bank conflicts. Those of f32 scores are an odd number of 16 bytes long, so that
/// exponentials, of which four threads take a row, have none either.
template <class W>
struct AttentionTile {
  W queries[kTile<W>][kPiece + 1], keys[kTile<W>][kPiece + 1];  // or rows of dy, or values
  W weight[kPiece];
  W scores[kTile<W>][kTile<W> + 4];
  W log_sum[kTile<W>], share[kTile<W>], delta[kTile<W>];  // of the tile's queries
  int from[kTile<W>], to[kTile<W>];                       // the keys that they see at most
  unsigned seen_by[kBlock / kWarp][kPairs<W>];  // [warp][j]: a bit for each lane whose j-th key is seen
  bool seen[kTile<W>];                          // which keys a query of the tile sees
};

/// The queries and keys of a tile, and their head.
struct TilePlace {
  Index b, head, group, query, key;
  int queries, keys;  // less than a whole tile at the ends
};

/// The tile of queries of a block's unit of work. The last queries come first: with a causal mask they have
/// the most work.
template <class W>
__device__ TilePlace place_of_queries(const AttentionShape& s, Index unit) {
  const Index tiles = tiles_of(s.queries, kTile<W>);
  TilePlace place;
  place.head = unit % s.heads, place.b = unit / s.heads % s.batch;
  place.group = place.head / (s.heads / s.groups);
  place.query = (tiles - 1 - unit / s.heads / s.batch) * kTile<W>;
  place.queries = static_cast<int>(min(Index{kTile<W>}, s.queries - place.query));
  return place;
}

__device__ inline int own_row(int i) { return static_cast<int>(threadIdx.x) / kSide + i * kSide; }
__device__ inline int own_column(int j) { return static_cast<int>(threadIdx.x) % kSide + j * kSide; }

/// score = query . key, with the query multiplied by the scale
struct DotScores {
  static constexpr bool kHasWeight = false, kIsModified = false;
  template <class W>
  __device__ static W add(W sum, W query, W key, W) {
    return sum + query * key;
  }
};

/// score = weight . tanh(query + key); slope is the score's derivative by `own`.
/// Source:  Bahdanau et al. 2015, arXiv:1409.0473, appendix A.1.2
struct AdditiveScores {
  static constexpr bool kHasWeight = true, kIsModified = false;
  template <class W>
  __device__ static W add(W sum, W query, W key, W weight) {
    return sum + weight * tanh(query + key);
  }
  template <class W>
  __device__ static W slope(W own, W other, W weight) {
    const W u = tanh(own + other);
    return weight * (W(1) - u * u);
  }
};

/// Puts `width` values of each of `rows` rows into a piece, with zeros next to them and if keep(row) is
/// false.
template <class T, class W, class Keep>
__device__ void load_piece(W (&to)[kTile<W>][kPiece + 1], const T* from, Index row_stride, int rows,
                           int width, W scale, Keep&& keep) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile<W> * kPiece; i += kBlock) {
    const int row = i / kPiece, at = i % kPiece;
    const bool is_there = row < rows && at < width && keep(row);
    to[row][at] = is_there ? scale * static_cast<W>(from[row * row_stride + at]) : W(0);
  }
}

template <class Scores, class T, class W>
__device__ void load_weight(AttentionTile<W>& tile, const T* weight, Index head, Index width, Index at) {
  if constexpr (Scores::kHasWeight) {
    const Index i = at + threadIdx.x;
    if (threadIdx.x < kPiece)
      tile.weight[threadIdx.x] = i < width ? static_cast<W>(weight[head * width + i]) : W(0);
  }
}

struct AllRows {
  __device__ bool operator()(int) const { return true; }
};

/// Rows of `width` values in memory.
template <class T>
struct Rows {
  const T* data;
  Index stride;
  int count;
};

/// For each of this thread's pairs the sum over the width of a row of `queries`, multiplied by `scale`, and
/// of `keys`. No thread may be reading shared memory, and at the end none is.
template <class Scores, class T, class W>
__device__ void sum_over_width(AttentionTile<W>& tile, const Rows<T>& queries, W scale, const Rows<T>& keys,
                               Index width, const T* weight, Index head, Pairs<W>& sums) {
  for_each_pair<W>([&](int i, int j) { sums[i][j] = W(0); });
  for (Index at = 0; at < width; at += kPiece) {
    const int count = static_cast<int>(min(Index{kPiece}, width - at));
    load_piece(tile.queries, queries.data + at, queries.stride, queries.count, count, scale, AllRows{});
    load_piece(tile.keys, keys.data + at, keys.stride, keys.count, count, W(1), AllRows{});
    load_weight<Scores>(tile, weight, head, width, at);
    __syncthreads();
    const bool has_pairs = own_row(0) < queries.count && own_column(0) < keys.count;
    for (int d = 0; has_pairs && d < count; ++d) {
      W query[kPairs<W>], key[kPairs<W>];
      for (int i = 0; i < kPairs<W>; ++i) query[i] = tile.queries[own_row(i)][d];
      for (int j = 0; j < kPairs<W>; ++j) key[j] = tile.keys[own_column(j)][d];
      const W factor = Scores::kHasWeight ? tile.weight[d] : W(1);
      for_each_pair<W>([&](int i, int j) { sums[i][j] = Scores::add(sums[i][j], query[i], key[j], factor); });
    }
    __syncthreads();
  }
}

/// This thread's sums in a piece of the output's width.
template <class W>
using PieceSums = W[kPairs<W>][kColumns];

/// sums[i][j] += sum over c < count of factor(row i, c) * slope(own[row i][column j], other[c][column j]),
/// where the slope of plain products is `other`
template <class Scores, class W, class Factor>
__device__ void sum_over_tile(int count, const Factor& factor, const W (&own)[kTile<W>][kPiece + 1],
                              const W (&other)[kTile<W>][kPiece + 1], const W (&weight)[kPiece],
                              PieceSums<W>& sums) {
  for (int c = 0; c < count; ++c) {
    W x[kColumns];
    for (int j = 0; j < kColumns; ++j) x[j] = other[c][own_column(j)];
    for (int i = 0; i < kPairs<W>; ++i) {
      const W f = factor(own_row(i), c);
      for (int j = 0; j < kColumns; ++j) {
        if constexpr (Scores::kHasWeight)
          sums[i][j] += f * Scores::slope(own[own_row(i)][own_column(j)], x[j], weight[own_column(j)]);
        else
          sums[i][j] += f * x[j];
      }
    }
  }
}

/// Loads the ranges of a tile's queries; returns true to all threads if one of them sees a key in [key_from,
/// key_to).
template <class W>
__device__ bool load_ranges(const AttentionShape& s, AttentionTile<W>& tile, Index b, Index query,
                            Index key_from, Index key_to) {
  bool sees = false;
  if (threadIdx.x < kTile<W>) {
    const Index t = query + threadIdx.x, row = b * s.queries + t;
    const bool is_there = t < s.queries;
    const Index from = is_there && s.key_from != nullptr ? max(Index{0}, Index{s.key_from[row]}) : 0;
    const Index to = !is_there ? 0 : s.key_to != nullptr ? min(s.keys, Index{s.key_to[row]}) : s.keys;
    tile.from[threadIdx.x] = static_cast<int>(from), tile.to[threadIdx.x] = static_cast<int>(to);
    sees = from < to && from < key_to && to > key_from;
  }
  return __syncthreads_or(sees) != 0;
}

/// Calls f() for each tile of keys in a range, with the place's keys set to it.
template <class W, class F>
__device__ void for_each_key_tile(const AttentionShape& s, const KeyRange& range, TilePlace& place, F&& f) {
  for (place.key = range.from / kTile<W> * kTile<W>; place.key < range.to; place.key += kTile<W>) {
    place.keys = static_cast<int>(min(Index{kTile<W>}, s.keys - place.key));
    f();
  }
}
/// Calls f() from the first to the last key that the tile's queries see, whose ranges are loaded first.
template <class W, class F>
__device__ void for_each_seen_tile(const AttentionShape& s, AttentionTile<W>& tile, TilePlace& place, F&& f) {
  load_ranges(s, tile, place.b, place.query, 0, s.keys);
  KeyRange range{s.keys, 0};
  for (int t = 0; t < place.queries; ++t) {
    if (tile.from[t] >= tile.to[t]) continue;
    range = {min(range.from, Index{tile.from[t]}), max(range.to, Index{tile.to[t]})};
  }
  for_each_key_tile<W>(s, range, place, f);
}

/// True if the masks, without the ranges, let a query of a head see a key; then the bias is added to their
/// score.
template <class W>
__device__ bool may_see(const AttentionShape& s, const W* bias, Index b, Index head, Index query, Index key,
                        W& score) {
  if (s.key_mask != nullptr && !s.key_mask[b * s.keys + key]) return false;
  const auto at = [&](const Index* strides) {
    return b * strides[0] + head * strides[1] + query * strides[2] + key * strides[3];
  };
  if (s.mask != nullptr && !s.mask[at(s.mask_strides)]) return false;
  if (bias == nullptr) return true;
  const W value = bias[at(s.bias_strides)];
  score += value;
  return value != kMinusInfinity<W>;
}

/// A bit for each of this thread's pairs.
template <class W>
__device__ unsigned bit_of(int i, int j) {
  return 1u << (i * kPairs<W> + j);
}

/// Adds the biases, and returns which of this thread's pairs are visible. Selected, not added: masked scores
/// may be infinite or NaN.
template <class Scores, class T, class W>
__device__ unsigned find_visible_pairs(const AttentionShape& s, const AttentionOperands<T>& x,
                                       const TilePlace& place, AttentionTile<W>& tile, Pairs<W>& scores) {
  unsigned visible = 0;
  for (int j = 0; j < kPairs<W>; ++j) {
    const Index key = place.key + own_column(j);
    bool is_seen = false;
    for (int i = 0; i < kPairs<W>; ++i) {
      const int row = own_row(i);
      if (key < tile.from[row] || key >= tile.to[row]) continue;
      if constexpr (Scores::kIsModified) {
        if (x.relative != nullptr)
          scores[i][j] += relative_row(s, x.relative, place.b, place.head, place.query + row)[key];
      }
      if (!may_see(s, x.bias, place.b, place.head, place.query + row, key, scores[i][j])) continue;
      visible |= bit_of<W>(i, j);
      is_seen = true;
    }
    const unsigned seen_by = __ballot_sync(kAllLanes, is_seen);
    if (own_lane() == 0) tile.seen_by[own_warp()][j] = seen_by;
  }
  return visible;
}

/// Joins the warps' results, after a barrier.
template <class W>
__device__ void find_seen_keys(AttentionTile<W>& tile) {
  if (threadIdx.x >= kTile<W>) return;
  const int j = static_cast<int>(threadIdx.x) / kSide, lane = static_cast<int>(threadIdx.x) % kSide;
  unsigned seen_by = 0;
  for (int warp = 0; warp < kBlock / kWarp; ++warp) seen_by |= tile.seen_by[warp][j];
  tile.seen[threadIdx.x] = ((seen_by >> lane | seen_by >> (lane + kSide)) & 1u) != 0;
}

/// The visible pairs of this thread that dropout keeps.
template <class W>
__device__ unsigned find_kept_pairs(const AttentionShape& s, const TilePlace& place, unsigned visible) {
  if (!s.drops) return visible;
  const PhiloxStream random = s.dropout.settled();
  unsigned kept = 0;
  for (int i = 0; i < kPairs<W>; ++i) {
    const Index row =
        ((place.b * s.heads + place.head) * s.queries + place.query + own_row(i)) * s.keys + place.key;
    for (int j = 0; j < kPairs<W>; ++j) {
      if ((visible & bit_of<W>(i, j)) == 0) continue;
      if (dropout_word(random, row + own_column(j)) >= s.dropped) kept |= bit_of<W>(i, j);
    }
  }
  return kept;
}

/// The rows of a tile's queries, and of its keys.
template <class T>
__device__ Rows<T> query_rows(const T* x, const HeadStrides& strides, const TilePlace& place) {
  return {x + strides.at(place.b, place.query, place.head), strides.row, place.queries};
}
template <class T>
__device__ Rows<T> key_rows(const T* x, const HeadStrides& strides, const TilePlace& place) {
  return {x + strides.at(place.b, place.key, place.group), strides.row, place.keys};
}

template <class W>
__device__ W kept_scale_of(const AttentionShape& s) {
  return s.drops ? static_cast<W>(s.kept_scale) : W(1);
}
template <class Scores, class W>
__device__ W scale_of(const AttentionShape& s) {
  return Scores::kHasWeight ? W(1) : static_cast<W>(s.scale);
}

/// The scores of this thread's pairs, before any change.
template <class Scores, class T, class W>
__device__ void find_scores(const AttentionShape& s, const AttentionOperands<T>& x, const TilePlace& place,
                            AttentionTile<W>& tile, Pairs<W>& scores) {
  sum_over_width<Scores>(tile, query_rows(x.query, s.query, place), scale_of<Scores, W>(s),
                         key_rows(x.key, s.key, place), s.key_width, x.weight, place.head, scores);
}

}  // namespace tapeformer::kernels
