#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/tile.h>

namespace tapeformer::kernels {

/// The input and output of the kernels of attention's backward pass.
template <class T>
struct AttentionBackwardCase : AttentionOperands<T>, AttentionGradients<T> {
  const Wide<T>* log_sum;
  const T* dy;
  HeadStrides dy_strides;
  const Wide<T>* delta = nullptr;    // [B, H, T]; nullptr for zeros
  const Wide<T>* share = nullptr;    // [B, H, T], factors of the weights; nullptr for ones
  Wide<T>* dweight_parts = nullptr;  // [B, tiles of T, H, D], parts of the sum; nullptr if not needed
};

/// Loads the logarithms, shares and deltas of a tile's queries. Shared memory is ready after a barrier.
template <class T, class W>
__device__ void load_statistics(const AttentionShape& s, const AttentionBackwardCase<T>& x,
                                const TilePlace& place, AttentionTile<W>& tile) {
  if (threadIdx.x >= kTile<W>) return;
  const bool is_there = static_cast<int>(threadIdx.x) < place.queries;
  const Index row = (place.b * s.heads + place.head) * s.queries + place.query + threadIdx.x;
  tile.log_sum[threadIdx.x] = is_there ? x.log_sum[row] : kMinusInfinity<W>;
  tile.delta[threadIdx.x] = is_there && x.delta != nullptr ? x.delta[row] : W(0);
  tile.share[threadIdx.x] = is_there && x.share != nullptr ? x.share[row] : W(1);
}

/// The weights before dropout and their gradients, both zero for pairs that are not visible. Returns the
/// pairs that dropout keeps. No thread may be reading shared memory, and at the end none is, except for the
/// seen keys.
template <class Scores, class T, class W>
__device__ unsigned find_dweights(const AttentionShape& s, const AttentionBackwardCase<T>& x,
                                  const TilePlace& place, AttentionTile<W>& tile, Pairs<W>& weights,
                                  Pairs<W>& dweights) {
  const W scale = Scores::kHasWeight ? W(1) : static_cast<W>(s.scale);
  sum_over_width<Scores>(tile, rows_of(x.query, s.query, place.b, place.query, place.head, place.queries),
                         scale, rows_of(x.key, s.key, place.b, place.key, place.group, place.keys),
                         s.key_width, x.weight, place.head, weights);
  const unsigned visible = find_visible_pairs(s, x.bias, place, tile, weights);
  const unsigned kept = find_kept_pairs<W>(s, place, visible);
  sum_over_width<DotScores>(
      tile, rows_of(x.dy, x.dy_strides, place.b, place.query, place.head, place.queries), kept_scale_of<W>(s),
      rows_of(x.value, s.value, place.b, place.key, place.group, place.keys), s.value_width, x.weight,
      place.head, dweights);
  for (int i = 0; i < kPairs<W>; ++i) {
    const W log_sum = tile.log_sum[own_row(i)], share = tile.share[own_row(i)];
    const W shift = log_sum == kMinusInfinity<W> ? W(0) : log_sum;
    for (int j = 0; j < kPairs<W>; ++j) {
      const bool is_visible = (visible & bit_of<W>(i, j)) != 0, is_kept = (kept & bit_of<W>(i, j)) != 0;
      weights[i][j] = is_visible ? share * exp(weights[i][j] - shift) : W(0);
      dweights[i][j] = is_visible && is_kept ? dweights[i][j] : W(0);
    }
  }
  return kept;
}

/// The same for the weights after dropout and the gradients of the scores.
template <class Scores, class T, class W>
__device__ void find_dscores(const AttentionShape& s, const AttentionBackwardCase<T>& x,
                             const TilePlace& place, AttentionTile<W>& tile, Pairs<W>& weights,
                             Pairs<W>& dscores) {
  const unsigned kept = find_dweights<Scores>(s, x, place, tile, weights, dscores);
  for (int i = 0; i < kPairs<W>; ++i) {
    for (int j = 0; j < kPairs<W>; ++j) {
      const W weight = weights[i][j];
      dscores[i][j] = weight != W(0) ? weight * (dscores[i][j] - tile.delta[own_row(i)]) : W(0);
      weights[i][j] = (kept & bit_of<W>(i, j)) != 0 ? kept_scale_of<W>(s) * weight : W(0);
    }
  }
}

template <class W>
__device__ void store_pairs(AttentionTile<W>& tile, const Pairs<W>& values) {
  for (int i = 0; i < kPairs<W>; ++i) {
    for (int j = 0; j < kPairs<W>; ++j) tile.scores[own_row(i)][own_column(j)] = values[i][j];
  }
}

/// Writes `rows` rows of a piece that begins at `at`.
template <class T, class W>
__device__ void put_piece(Write<T> to, Index at, Index row_stride, int rows, Index width, W scale,
                          const PieceSums<W>& sums) {
  for (int i = 0; i < kPairs<W>; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      if (own_row(i) < rows && own_column(j) < width)
        to.put(at + own_row(i) * row_stride + own_column(j), scale * sums[i][j]);
    }
  }
}

}  // namespace tapeformer::kernels
