#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/plain/tile.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>

#include <algorithm>

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

/// The weights before dropout and their gradients, both zero for pairs that are not visible, and the slopes
/// of modified scores. Returns the pairs that dropout keeps. No thread may be reading shared memory, and at
/// the end none is, except for the seen keys and the statistics.
template <class Scores, GradientOf kOf, class T, class W>
__device__ unsigned find_dweights(const AttentionShape& s, const AttentionBackwardCase<T>& x,
                                  const TilePlace& place, AttentionTile<W>& tile, Pairs<W>& weights,
                                  Pairs<W>& dweights, Pairs<W>& slopes) {
  find_scores<Scores>(s, x, place, tile, weights);
  if constexpr (Scores::kIsModified) apply_function<kOf>(s, x, place.head, weights, slopes);
  const unsigned visible = find_visible_pairs<Scores, T>(s, x, place, tile, weights);
  const unsigned kept = find_kept_pairs<W>(s, place, visible);
  sum_over_width<DotScores>(tile, query_rows(x.dy, x.dy_strides, place), kept_scale_of<W>(s),
                            key_rows(x.value, s.value, place), s.value_width, x.weight, place.head, dweights);
  for_each_pair<W>([&](int i, int j) {
    const W log_sum = tile.log_sum[own_row(i)], shift = log_sum == kMinusInfinity<W> ? W(0) : log_sum;
    const bool is_visible = (visible & bit_of<W>(i, j)) != 0, is_kept = (kept & bit_of<W>(i, j)) != 0;
    if (!Scores::kIsModified || s.weighting == AttentionWeighting::softmax)
      weights[i][j] = is_visible ? tile.share[own_row(i)] * exp(weights[i][j] - shift) : W(0);
    else
      weights[i][j] = is_visible ? sigmoid(weights[i][j]) : W(0);
    dweights[i][j] = is_visible && is_kept ? dweights[i][j] : W(0);
  });
  return kept;
}

/// Finds the weights after dropout and the pairs' gradients of what kOf names.
template <class Scores, GradientOf kOf = GradientOf::score, class T, class W>
__device__ void find_dscores(const AttentionShape& s, const AttentionBackwardCase<T>& x,
                             const TilePlace& place, AttentionTile<W>& tile, Pairs<W>& weights,
                             Pairs<W>& dscores) {
  Pairs<W> slopes;
  const unsigned kept = find_dweights<Scores, kOf>(s, x, place, tile, weights, dscores, slopes);
  for_each_pair<W>([&](int i, int j) {
    const W weight = weights[i][j];
    W slope = weight;  // of the weight, by what it is made of
    if constexpr (Scores::kIsModified) {
      if (s.weighting == AttentionWeighting::sigmoid) slope *= W(1) - weight;
      if constexpr (kOf != GradientOf::biases) slope *= slopes[i][j];
    }
    dscores[i][j] = weight != W(0) ? slope * (dscores[i][j] - tile.delta[own_row(i)]) : W(0);
    weights[i][j] = (kept & bit_of<W>(i, j)) != 0 ? kept_scale_of<W>(s) * weight : W(0);
  });
}

template <class W>
__device__ void store_pairs(AttentionTile<W>& tile, const Pairs<W>& values) {
  for_each_pair<W>([&](int i, int j) { tile.scores[own_row(i)][own_column(j)] = values[i][j]; });
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

/// The deltas of all rows, and where they are exact their shares: queues finding them from the rest of a
/// case, and adds them to it. Weights by a sigmoid have neither.
template <class T>
struct RowSums {
  RowSums(Cuda on, const AttentionShape& s, AttentionBackwardCase<T>& x, const T* y);
  Scratch<Wide<T>> delta, share;
};

/// Adds `count` parts of a gradient of `size` values, one after the other.
template <class W>
void add_parts(Cuda on, const char* name, Index size, Index count, const W* parts, Write<W> to);

/// Launches a kernel that sums `steps` with several blocks for each of `units`: at most one per step and,
/// unless there are more units, `most` in all. It is sum(parts, to), where `to` is memory for all parts, or
/// the gradient itself.
template <class W, class F>
void sum_in_parts(Cuda on, Index units, Index steps, Index most, Index size, Write<W> to, F&& sum) {
  const Index parts = std::max(Index{1}, std::min(steps, most / std::max(units, Index{1})));
  if (parts == 1) return sum(parts, to);
  const Scratch<W> of_parts(on, parts * size);
  sum(parts, Write<W>{of_parts.data(), false});
  add_parts(on, "attention_add_parts", size, parts, of_parts.data(), to);
}

/// True if the backward pass is that of modified scores, as with an additive mask, which may be large and
/// learned. Sinks alone are in log_sum and delta.
template <class T>
bool is_modified(const AttentionShape& s, const AttentionOperands<T>& x) {
  return changes_pairs(s, x) || x.bias != nullptr;
}
/// Calls f with the Scores of a case.
template <class T, class F>
void with_scores(const AttentionShape& s, const AttentionOperands<T>& x, F&& f) {
  if (x.weight == nullptr)
    is_modified(s, x) ? f(Modified<DotScores>{}) : f(DotScores{});
  else
    is_modified(s, x) ? f(Modified<AdditiveScores>{}) : f(AdditiveScores{});
}

}  // namespace tapeformer::kernels
