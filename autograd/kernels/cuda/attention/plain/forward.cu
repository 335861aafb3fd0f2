#include <tapeformer/autograd/kernels/cuda/attention/plain/tile.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr int kPieces = 4;  // of the value's width that a block sums

/// Replaces scores by their exponentials for the largest score so far. Each row belongs to a few neighbouring
/// threads, which all keep its largest score and the sum of its exponentials. Returns the factor of earlier
/// sums.
/// Source:  Milakov and Gimelshein 2018, arXiv:1805.02867
template <class W>
__device__ W exponentiate_row(W* scores, int columns, W& largest, W& total) {
  constexpr int kThreads = kBlock / kTile<W>;
  const int first = static_cast<int>(threadIdx.x) % kThreads;
  W most = largest;
  for (int c = first; c < columns; c += kThreads) most = max(most, scores[c]);
  most = warp_largest<kThreads>(most);
  const W shift = most == kMinusInfinity<W> ? W(0) : most;
  W sum = W(0);
  for (int c = first; c < columns; c += kThreads) sum += scores[c] = exp(scores[c] - shift);
  const W shrink = exp(largest - shift);
  largest = most, total = total * shrink + warp_sum<kThreads>(sum);
  return shrink;
}

/// Replaces scores by their weights, which no sum divides; `largest` becomes finite once a key is seen.
template <class W>
__device__ void find_sigmoids(W* scores, int columns, W& largest) {
  constexpr int kThreads = kBlock / kTile<W>;
  bool sees = false;
  for (int c = static_cast<int>(threadIdx.x) % kThreads; c < columns; c += kThreads) {
    sees = sees || scores[c] != kMinusInfinity<W>;
    scores[c] = sigmoid(scores[c]);
  }
  if (warp_largest<kThreads>(static_cast<int>(sees)) != 0) largest = W(0);
}

/// A block has a tile of queries of one head and kPieces pieces of the value's width, and loops over the
/// keys. Blocks with the last queries come first: with a causal mask they have the most work.
/// Source:  Dao 2023, arXiv:2307.08691, algorithm 1
template <class Scores, class T>
__global__ void __launch_bounds__(kBlock)
    attention_forward_kernel(AttentionShape s, Index parts, AttentionOperands<T> x, T* y, Wide<T>* log_sum) {
  using W = Wide<T>;
  constexpr int kRows = kTile<W>;
  __shared__ AttentionTile<W> tile;
  __shared__ W factors[kRows];  // of the sums of each row
  const Index part = blockIdx.x % parts;
  TilePlace place = place_of_queries<W>(s, blockIdx.x / parts);
  const Index first = part * kPieces * kPiece;  // of the value's width
  // A few threads share each row's exponentials.
  const int row = static_cast<int>(threadIdx.x) / (kBlock / kRows);
  const bool is_first = threadIdx.x % (kBlock / kRows) == 0;

  W sums[kPieces][kPairs<W>][kColumns] = {};
  W largest = kMinusInfinity<W>, total = W(0);
  const bool is_softmax = !Scores::kIsModified || s.weighting == AttentionWeighting::softmax;
  for_each_seen_tile(s, tile, place, [&] {
    Pairs<W> scores;
    find_scores<Scores>(s, x, place, tile, scores);
    if constexpr (Scores::kIsModified) apply_function<GradientOf::biases>(s, x, place.head, scores, scores);
    const unsigned visible = find_visible_pairs<Scores>(s, x, place, tile, scores);
    for_each_pair<W>([&](int i, int j) {
      tile.scores[own_row(i)][own_column(j)] =
          (visible & bit_of<W>(i, j)) != 0 ? scores[i][j] : kMinusInfinity<W>;
    });
    __syncthreads();
    W shrink = W(1);
    if (is_softmax)
      shrink = exponentiate_row(tile.scores[row], place.keys, largest, total);
    else
      find_sigmoids(tile.scores[row], place.keys, largest);
    if (is_first) factors[row] = shrink;
    find_seen_keys(tile);
    __syncthreads();
    if (s.drops) {
      const unsigned kept = find_kept_pairs<W>(s, place, visible);
      for_each_pair<W>([&](int i, int j) {
        if ((kept & bit_of<W>(i, j)) == 0) tile.scores[own_row(i)][own_column(j)] = W(0);
      });
    }
    const Rows<T> values = key_rows(x.value, s.value, place);
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const Index at = first + piece * kPiece;
      if (at >= s.value_width) continue;
      load_piece(tile.keys, values.data + at, values.stride, values.count,
                 static_cast<int>(min(Index{kPiece}, s.value_width - at)), W(1),
                 [&](int c) { return tile.seen[c]; });
      __syncthreads();
      for (int i = 0; i < kPairs<W>; ++i) {
        for (int j = 0; j < kColumns; ++j) sums[piece][i][j] *= factors[own_row(i)];
      }
      sum_over_tile<DotScores>(
          place.keys, [&](int r, int c) { return tile.scores[r][c]; }, tile.queries, tile.keys, tile.weight,
          sums[piece]);
      __syncthreads();
    }
  });

  W shrink = W(1);
  if constexpr (Scores::kIsModified) {
    if (!is_softmax) total = largest == kMinusInfinity<W> ? W(0) : W(1);
    if (x.sinks != nullptr)
      shrink = add_sink(x.sinks[place.head], largest, total, [](W exponent) { return exp(exponent); });
  }
  if (is_first) factors[row] = total == W(0) ? W(0) : kept_scale_of<W>(s) * shrink / total;
  if (is_first && part == 0 && row < place.queries)
    log_sum[(place.b * s.heads + place.head) * s.queries + place.query + row] = largest + log(total);
  __syncthreads();
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    for (int i = 0; i < kPairs<W>; ++i) {
      for (int j = 0; j < kColumns; ++j) {
        const Index t = place.query + own_row(i), at = first + piece * kPiece + own_column(j);
        if (own_row(i) < place.queries && at < s.value_width)
          y[((place.b * s.queries + t) * s.heads + place.head) * s.value_width + at] =
              static_cast<T>(sums[piece][i][j] * factors[own_row(i)]);
      }
    }
  }
}

template <class Scores, class T>
void run(Cuda on, const char* name, const AttentionShape& s, const AttentionOperands<T>& x, T* y,
         Wide<T>* log_sum) {
  const Index parts = std::max(Index{1}, tiles_of(s.value_width, kPieces * kPiece));
  const Index blocks = s.batch * s.heads * tiles_of(s.queries, kTile<Wide<T>>) * parts;
  launch(on, name, attention_forward_kernel<Scores, T>, blocks, s, parts, x, y, log_sum);
}

}  // namespace

template <class T>
bool plain_attention_forward(Cuda on, const AttentionShape& shape, const AttentionOperands<T>& x, T* y,
                             Wide<T>* log_sum) {
  const bool is_modified = modifies(shape, x);
  if (x.weight != nullptr)
    (is_modified ? run<Modified<AdditiveScores>, T>
                 : run<AdditiveScores, T>)(on, "additive_attention_forward", shape, x, y, log_sum);
  else
    (is_modified ? run<Modified<DotScores>, T> : run<DotScores, T>)(on, "attention_forward", shape, x, y,
                                                                    log_sum);
  return true;
}

template decltype(plain_attention_forward<float>) plain_attention_forward<float>;
template decltype(plain_attention_forward<double>) plain_attention_forward<double>;
template decltype(plain_attention_forward<BFloat16>) plain_attention_forward<BFloat16>;

}  // namespace tapeformer::kernels
