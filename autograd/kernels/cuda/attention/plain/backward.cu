#include <tapeformer/autograd/kernels/cuda/attention/plain/gradient.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr int kQueryPieces = 4, kKeyPieces = 2;  // of the gradients' widths that a block sums

/// Adds dscore tanh(query + key) of this thread's rows to the gradient of its columns of the weight.
template <class W>
__device__ void sum_angles(int count, const AttentionTile<W>& tile, W (&sums)[kColumns]) {
  for (int i = 0; i < kPairs<W>; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      const W query = tile.queries[own_row(i)][own_column(j)];
      for (int c = 0; c < count; ++c) {
        const W dscore = tile.scores[own_row(i)][c];
        sums[j] += dscore * tanh(query + tile.keys[c][own_column(j)]);
      }
    }
  }
}

/// dweight of a piece: adds sums[j] over the threads of a column, into `to`.
template <class W>
__device__ void put_weight_piece(AttentionTile<W>& tile, const W (&sums)[kColumns], Index width, W* to) {
  for (int j = 0; j < kColumns; ++j) tile.scores[own_row(0)][own_column(j)] = sums[j];
  __syncthreads();
  if (threadIdx.x < kPiece && threadIdx.x < width) {
    W sum = W(0);
    for (int i = 0; i < kSide; ++i) sum += tile.scores[i][threadIdx.x];
    to[threadIdx.x] = sum;
  }
  __syncthreads();
}

/// A block has a tile of queries of one head and kQueryPieces pieces of their width, and loops over the keys.
template <class Scores, class T>
__global__ void __launch_bounds__(kBlock)
    attention_dquery_kernel(AttentionShape s, Index parts, AttentionBackwardCase<T> x) {
  using W = Wide<T>;
  constexpr int kRows = kTile<W>;
  __shared__ AttentionTile<W> tile;
  const Index part = blockIdx.x % parts, tiles = tiles_of(s.queries, kRows);
  TilePlace place = place_of_queries<W>(s, blockIdx.x / parts);
  const Index first = part * kQueryPieces * kPiece;  // of the key's width

  load_statistics(s, x, place, tile);
  W sums[kQueryPieces][kPairs<W>][kColumns] = {};
  W of_weight[kQueryPieces][kColumns] = {};
  for_each_seen_tile(s, tile, place, [&] {
    Pairs<W> weights, dscores;
    find_dscores<Scores>(s, x, place, tile, weights, dscores);
    store_pairs(tile, dscores);
    __syncthreads();
    find_seen_keys(tile);
    __syncthreads();
    const Rows<T> keys = key_rows(x.key, s.key, place), queries = query_rows(x.query, s.query, place);
#pragma unroll
    for (int piece = 0; piece < kQueryPieces; ++piece) {
      const Index at = first + piece * kPiece;
      if (at >= s.key_width) continue;
      const int width = static_cast<int>(min(Index{kPiece}, s.key_width - at));
      load_piece(tile.keys, keys.data + at, keys.stride, keys.count, width, W(1),
                 [&](int c) { return tile.seen[c]; });
      if constexpr (Scores::kHasWeight) {
        load_piece(tile.queries, queries.data + at, queries.stride, queries.count, width, W(1),
                   [&](int t) { return tile.log_sum[t] != kMinusInfinity<W>; });
        load_weight<Scores>(tile, x.weight, place.head, s.key_width, at);
      }
      __syncthreads();
      const auto factor = [&](int r, int c) { return tile.scores[r][c]; };
      sum_over_tile<Scores>(place.keys, factor, tile.queries, tile.keys, tile.weight, sums[piece]);
      if constexpr (Scores::kHasWeight) sum_angles(place.keys, tile, of_weight[piece]);
      __syncthreads();
    }
  });

#pragma unroll
  for (int piece = 0; piece < kQueryPieces; ++piece) {
    const Index at = first + piece * kPiece;
    if (at >= s.key_width) continue;
    if (x.dquery)
      put_piece(x.dquery, s.query.at(place.b, place.query, place.head) + at, s.query.row, place.queries,
                s.key_width - at, scale_of<Scores, W>(s), sums[piece]);
    if constexpr (Scores::kHasWeight) {
      if (x.dweight_parts == nullptr) continue;
      const Index tile_of_all = place.b * tiles + place.query / kRows;
      put_weight_piece(tile, of_weight[piece], s.key_width - at,
                       x.dweight_parts + (tile_of_all * s.heads + place.head) * s.key_width + at);
    }
  }
}

/// A block has a tile of keys of one group and kKeyPieces pieces of the keys' and the values' width, and
/// loops over the heads that share them and their queries.
/// Source:  Dao 2023, arXiv:2307.08691, algorithm 2
template <class Scores, class T>
__global__ void __launch_bounds__(kBlock)
    attention_dkey_kernel(AttentionShape s, Index parts, AttentionBackwardCase<T> x) {
  using W = Wide<T>;
  constexpr int kRows = kTile<W>;
  __shared__ AttentionTile<W> tile;
  const Index part = blockIdx.x % parts, unit = blockIdx.x / parts, heads = s.heads / s.groups;
  TilePlace place;
  place.group = unit % s.groups, place.b = unit / s.groups % s.batch;
  place.key = unit / s.groups / s.batch * kRows;
  place.keys = static_cast<int>(min(Index{kRows}, s.keys - place.key));
  const Index first = part * kKeyPieces * kPiece;  // of either width
  const auto factor = [&](int r, int c) { return tile.scores[c][r]; };
  const auto is_real = [&](int t) { return tile.log_sum[t] != kMinusInfinity<W>; };

  W dkeys[kKeyPieces][kPairs<W>][kColumns] = {}, dvalues[kKeyPieces][kPairs<W>][kColumns] = {};
  for (place.head = place.group * heads; place.head < (place.group + 1) * heads; ++place.head) {
    for (place.query = 0; place.query < s.queries; place.query += kRows) {
      place.queries = static_cast<int>(min(Index{kRows}, s.queries - place.query));
      load_statistics(s, x, place, tile);
      if (!load_ranges(s, tile, place.b, place.query, place.key, place.key + place.keys)) continue;
      Pairs<W> weights, dscores;
      find_dscores<Scores>(s, x, place, tile, weights, dscores);
      store_pairs(tile, weights);
      const Rows<T> dy = query_rows(x.dy, x.dy_strides, place);
#pragma unroll
      for (int piece = 0; piece < kKeyPieces; ++piece) {
        const Index at = first + piece * kPiece;
        if (!x.dvalue || at >= s.value_width) continue;
        load_piece(tile.queries, dy.data + at, dy.stride, dy.count,
                   static_cast<int>(min(Index{kPiece}, s.value_width - at)), W(1), is_real);
        __syncthreads();
        sum_over_tile<DotScores>(place.queries, factor, tile.keys, tile.queries, tile.weight, dvalues[piece]);
        __syncthreads();
      }
      store_pairs(tile, dscores);
      __syncthreads();
      find_seen_keys(tile);
      __syncthreads();
      const Rows<T> keys = key_rows(x.key, s.key, place), queries = query_rows(x.query, s.query, place);
#pragma unroll
      for (int piece = 0; piece < kKeyPieces; ++piece) {
        const Index at = first + piece * kPiece;
        if (!x.dkey || at >= s.key_width) continue;
        const int width = static_cast<int>(min(Index{kPiece}, s.key_width - at));
        load_piece(tile.queries, queries.data + at, queries.stride, queries.count, width,
                   scale_of<Scores, W>(s), is_real);
        if constexpr (Scores::kHasWeight) {
          load_piece(tile.keys, keys.data + at, keys.stride, keys.count, width, W(1),
                     [&](int c) { return tile.seen[c]; });
          load_weight<Scores>(tile, x.weight, place.head, s.key_width, at);
        }
        __syncthreads();
        sum_over_tile<Scores>(place.queries, factor, tile.keys, tile.queries, tile.weight, dkeys[piece]);
        __syncthreads();
      }
    }
  }

#pragma unroll
  for (int piece = 0; piece < kKeyPieces; ++piece) {
    const Index at = first + piece * kPiece;
    if (x.dkey && at < s.key_width)
      put_piece(x.dkey, s.key.at(place.b, place.key, place.group) + at, s.key.row, place.keys,
                s.key_width - at, W(1), dkeys[piece]);
    if (x.dvalue && at < s.value_width)
      put_piece(x.dvalue, s.value.at(place.b, place.key, place.group) + at, s.value.row, place.keys,
                s.value_width - at, W(1), dvalues[piece]);
  }
}

template <class Scores, class T>
void run(Cuda on, const AttentionShape& s, AttentionBackwardCase<T> x, const T* y) {
  using W = Wide<T>;
  const Index query_tiles = tiles_of(s.queries, kTile<W>), key_tiles = tiles_of(s.keys, kTile<W>);
  const Index weights = s.heads * s.key_width, tiles = s.batch * query_tiles;
  const Scratch<W> dweight_parts(on, x.dweight ? tiles * weights : 0);
  const RowSums<T> sums(on, s, x, y);
  x.dweight_parts = x.dweight ? dweight_parts.data() : nullptr;
  if (x.dquery || x.dweight) {
    const Index parts = tiles_of(s.key_width, kQueryPieces * kPiece);
    launch(on, "attention_dquery", attention_dquery_kernel<Scores, T>, tiles * s.heads * parts, s, parts, x);
  }
  if (x.dweight) add_parts(on, "attention_dweight", weights, tiles, x.dweight_parts, x.dweight);
  if (x.dkey || x.dvalue) {
    const Index parts = tiles_of(std::max(s.key_width, s.value_width), kKeyPieces * kPiece);
    launch(on, "attention_dkey", attention_dkey_kernel<Scores, T>, s.batch * s.groups * key_tiles * parts, s,
           parts, x);
  }
}

}  // namespace

template <class T>
bool plain_attention_backward(Cuda on, const AttentionShape& shape, const AttentionOperands<T>& x, const T* y,
                              const Wide<T>* log_sum, const T* dy, const AttentionGradients<T>& to) {
  const AttentionBackwardCase<T> c{x, to, log_sum, dy, output_strides(shape)};
  with_scores(shape, x, [&](auto scores) { run<decltype(scores), T>(on, shape, c, y); });
  return true;
}

template decltype(plain_attention_backward<float>) plain_attention_backward<float>;
template decltype(plain_attention_backward<double>) plain_attention_backward<double>;
template decltype(plain_attention_backward<BFloat16>) plain_attention_backward<BFloat16>;

}  // namespace tapeformer::kernels
