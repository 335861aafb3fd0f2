#include <tapeformer/autograd/kernels/cuda/attention/plain/gradient.h>

namespace tapeformer::kernels {
namespace {

// The gradients of what is added to scores, and of parameters. Each kernel, but that of sinks, computes
// weights and their gradients again. A block sums in a fixed order over what a number of a gradient is
// broadcast over; where several blocks share that, their parts are added in order.

constexpr Index kEnoughBlocks = 528;  // four for each SM of a large GPU; the same everywhere, for equal bits

/// The numbers of steps along the axes of the scores: batch entries, heads, tiles of queries and tiles of
/// keys.
struct Steps {
  Index of[4];
  __host__ __device__ Index count() const { return of[0] * of[1] * of[2] * of[3]; }
};

/// Step i's numbers along the axes.
__device__ inline Steps step_at(const Steps& steps, Index i) {
  Steps at;
  for (int axis = 3; axis >= 0; --axis) at.of[axis] = i % steps.of[axis], i /= steps.of[axis];
  return at;
}

template <class W>
__device__ TilePlace place_at(const AttentionShape& s, const Steps& at) {
  TilePlace place;
  place.b = at.of[0], place.head = at.of[1], place.group = at.of[1] / (s.heads / s.groups);
  place.query = at.of[2] * kTile<W>, place.key = at.of[3] * kTile<W>;
  place.queries = static_cast<int>(min(Index{kTile<W>}, s.queries - place.query));
  place.keys = static_cast<int>(min(Index{kTile<W>}, s.keys - place.key));
  return place;
}

/// A block has a tile of the additive mask and sums over the axes along which it is broadcast: `own` has 1
/// step along these, `summed` along the others.
template <class Scores, class T>
__global__ void __launch_bounds__(kBlock)
    attention_dbias_kernel(AttentionShape s, Index parts, AttentionBackwardCase<T> x, Steps own, Steps summed,
                           Index size, Write<Wide<T>> to) {
  using W = Wide<T>;
  constexpr int kRows = kTile<W>;
  __shared__ AttentionTile<W> tile;
  const Steps first = step_at(own, blockIdx.x / parts);
  const Index part = blockIdx.x % parts;
  const Index steps = summed.count(), end = steps * (part + 1) / parts;
  Pairs<W> sums = {};
  for (Index i = steps * part / parts; i < end; ++i) {
    Steps at = step_at(summed, i);
    for (int axis = 0; axis < 4; ++axis) at.of[axis] += first.of[axis];  // one of them is zero
    const TilePlace place = place_at<W>(s, at);
    load_statistics(s, x, place, tile);
    if (load_ranges(s, tile, place.b, place.query, place.key, place.key + place.keys)) {
      Pairs<W> weights, dscores;
      find_dscores<Scores, GradientOf::biases>(s, x, place, tile, weights, dscores);
      for_each_pair<W>([&](int r, int c) { sums[r][c] += dscores[r][c]; });
    }
    __syncthreads();  // all have read the statistics
  }
  store_pairs(tile, sums);
  __syncthreads();
  const bool has_rows = s.bias_strides[2] != 0, has_columns = s.bias_strides[3] != 0;
  const int rows = has_rows ? kRows : 1, columns = has_columns ? kRows : 1;
  for (int i = static_cast<int>(threadIdx.x); i < rows * columns; i += kBlock) {
    const int row = i / columns, column = i % columns;
    const Index query = first.of[2] * kRows + row, key = first.of[3] * kRows + column;
    if ((has_rows && query >= s.queries) || (has_columns && key >= s.keys)) continue;
    W sum = W(0);
    for (int r = row; r < (has_rows ? row + 1 : kRows); ++r) {
      for (int c = column; c < (has_columns ? column + 1 : kRows); ++c) sum += tile.scores[r][c];
    }
    to.put(part * size + first.of[0] * s.bias_strides[0] + first.of[1] * s.bias_strides[1] +
               query * s.bias_strides[2] + key * s.bias_strides[3],
           sum);
  }
}

/// The keys whose distance from one of the tile's queries is in [low, low + kBlock): from the first to the
/// last. `positions` gets the queries' positions.
template <class W>
__device__ KeyRange keys_at_distances(const AttentionShape& s, const AttentionTile<W>& tile,
                                      const TilePlace& place, Index low, int (&positions)[kTile<W>]) {
  if (static_cast<int>(threadIdx.x) < place.queries)
    positions[threadIdx.x] = s.positions[place.b * s.queries + place.query + threadIdx.x];
  __syncthreads();
  KeyRange keys{s.keys, 0};
  for (int t = 0; t < place.queries; ++t) {
    const Index from = max(Index{tile.from[t]}, positions[t] + low),
                to = min(Index{tile.to[t]}, positions[t] + low + kBlock);
    if (from < to) keys = {min(keys.from, from), max(keys.to, to)};
  }
  return keys;
}

/// A block has kBlock neighbouring distances of a head, or of all heads that share the bias, and sums over
/// the tiles that have pairs this far apart. A thread has one distance, and in each tile its diagonal.
template <class Scores, class T>
__global__ void __launch_bounds__(kBlock)
    attention_drelative_kernel(AttentionShape s, Index parts, AttentionBackwardCase<T> x, Steps summed,
                               Index heads, Write<Wide<T>> to) {
  using W = Wide<T>;
  __shared__ AttentionTile<W> tile;
  __shared__ int positions[kTile<W>];
  const Index count = 2 * s.reach + 1, part = blockIdx.x % parts, unit = blockIdx.x / parts;
  const Index head = unit % heads, low = unit / heads * kBlock - s.reach, own = low + threadIdx.x;
  const Index steps = summed.count(), end = steps * (part + 1) / parts;
  W sum = W(0);
  for (Index i = steps * part / parts; i < end; ++i) {
    Steps at = step_at(summed, i);
    at.of[1] += head;
    TilePlace place = place_at<W>(s, at);
    load_statistics(s, x, place, tile);
    load_ranges(s, tile, place.b, place.query, 0, s.keys);
    const KeyRange keys = keys_at_distances(s, tile, place, low, positions);
    for_each_key_tile<W>(s, keys, place, [&] {
      Pairs<W> weights, dscores;
      find_dscores<Scores, GradientOf::biases>(s, x, place, tile, weights, dscores);
      store_pairs(tile, dscores);
      __syncthreads();
      for (int t = 0; t < place.queries; ++t) {
        const Index column = positions[t] + own - place.key;
        if (column >= 0 && column < place.keys) sum += tile.scores[t][column];
      }
      __syncthreads();
    });
    __syncthreads();  // all have read the statistics and positions
  }
  if (own <= s.reach) to.put((part * heads + head) * count + own + s.reach, sum);
}

/// One block for each tile of queries of a head, which sums over the keys.
template <class Scores, class T>
__global__ void __launch_bounds__(kBlock)
    attention_dparameter_kernel(AttentionShape s, AttentionBackwardCase<T> x, Steps summed, Wide<T>* parts) {
  using W = Wide<T>;
  __shared__ AttentionTile<W> tile;
  TilePlace place = place_at<W>(s, step_at(summed, blockIdx.x));
  load_statistics(s, x, place, tile);
  W sum = W(0);
  for_each_seen_tile(s, tile, place, [&] {
    Pairs<W> weights, dscores;
    find_dscores<Scores, GradientOf::parameter>(s, x, place, tile, weights, dscores);
    for_each_pair<W>([&](int i, int j) { sum += dscores[i][j]; });
  });
  sum = block_sum(sum);
  const Index part = place.b * tiles_of(s.queries, kTile<W>) + place.query / kTile<W>;
  if (threadIdx.x == 0) parts[part * s.heads + place.head] = sum;
}

/// -sum over the queries of the sink's weight times delta, for each [B, H]: one block each.
template <class T>
__global__ void __launch_bounds__(kBlock)
    attention_dsinks_kernel(AttentionShape s, AttentionBackwardCase<T> x, Wide<T>* parts) {
  using W = Wide<T>;
  const Index first = blockIdx.x * s.queries;
  const W sink = x.sinks[blockIdx.x % s.heads];
  W sum = W(0);
  for (Index row = first + threadIdx.x; row < first + s.queries; row += kBlock) {
    if (x.log_sum[row] == kMinusInfinity<W>) continue;
    const W share = x.share != nullptr ? x.share[row] : W(1);
    sum -= share * exp(sink - x.log_sum[row]) * x.delta[row];
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

template <class Scores, class T>
void find_dbias(Cuda on, const AttentionShape& s, const AttentionBackwardCase<T>& x, Write<Wide<T>> dbias) {
  const Index tile = kTile<Wide<T>>, sizes[] = {s.batch, s.heads, s.queries, s.keys};
  Steps own, summed;
  Index size = 1;
  for (int axis = 0; axis < 4; ++axis) {
    const Index steps = axis < 2 ? sizes[axis] : tiles_of(sizes[axis], tile);
    const bool is_broadcast = s.bias_strides[axis] == 0;
    own.of[axis] = is_broadcast ? 1 : steps, summed.of[axis] = is_broadcast ? steps : 1;
    if (!is_broadcast) size *= sizes[axis];
  }
  sum_in_parts(on, own.count(), summed.count(), kEnoughBlocks, size, dbias,
               [&](Index parts, Write<Wide<T>> to) {
                 launch(on, "attention_dbias", attention_dbias_kernel<Scores, T>, own.count() * parts, s,
                        parts, x, own, summed, size, to);
               });
}

template <class Scores, class T>
void find_drelative(Cuda on, const AttentionShape& s, const AttentionBackwardCase<T>& x,
                    Write<Wide<T>> drelative) {
  const bool is_shared = s.relative_stride == 0;
  const Index count = 2 * s.reach + 1, heads = is_shared ? 1 : s.heads;
  const Steps summed{{s.batch, is_shared ? s.heads : 1, tiles_of(s.queries, kTile<Wide<T>>), 1}};
  const Index units = heads * tiles_of(count, kBlock);
  sum_in_parts(on, units, summed.count(), kEnoughBlocks, heads * count, drelative,
               [&](Index parts, Write<Wide<T>> to) {
                 launch(on, "attention_drelative", attention_drelative_kernel<Scores, T>, units * parts, s,
                        parts, x, summed, heads, to);
               });
}

template <class Scores, class T>
void find_dparameter(Cuda on, const AttentionShape& s, const AttentionBackwardCase<T>& x,
                     Write<Wide<T>> dparameter) {
  const Steps summed{{s.batch, s.heads, tiles_of(s.queries, kTile<Wide<T>>), 1}};
  const Scratch<Wide<T>> parts(on, summed.count());
  launch(on, "attention_dparameter", attention_dparameter_kernel<Scores, T>, summed.count(), s, x, summed,
         parts.data());
  const Index size = s.parameter_stride == 0 ? 1 : s.heads;
  add_parts(on, "attention_add_parts", size, summed.count() / size, parts.data(), dparameter);
}

template <class T>
void find_dsinks(Cuda on, const AttentionShape& s, const AttentionBackwardCase<T>& x, Write<Wide<T>> dsinks) {
  const Scratch<Wide<T>> parts(on, s.batch * s.heads);
  launch(on, "attention_dsinks", attention_dsinks_kernel<T>, s.batch * s.heads, s, x, parts.data());
  add_parts(on, "attention_add_parts", s.heads, s.batch, parts.data(), dsinks);
}

}  // namespace

template <class T>
void plain_attention_score_gradients(Cuda on, const AttentionShape& s, const AttentionOperands<T>& x,
                                     const T* y, const Wide<T>* log_sum, const T* dy,
                                     const AttentionScoreGradients<T>& to) {
  with_scores(s, x, [&](auto scores) {
    using Scores = decltype(scores);
    AttentionBackwardCase<T> c{x, {}, log_sum, dy, output_strides(s)};
    const RowSums<T> sums(on, s, c, y);
    if (to.dbias) find_dbias<Scores>(on, s, c, to.dbias);
    if constexpr (Scores::kIsModified) {
      if (to.drelative) find_drelative<Scores>(on, s, c, to.drelative);
      if (to.dparameter) find_dparameter<Scores>(on, s, c, to.dparameter);
    }
    if (to.dsinks) find_dsinks(on, s, c, to.dsinks);
  });
}

template decltype(plain_attention_score_gradients<float>) plain_attention_score_gradients<float>;
template decltype(plain_attention_score_gradients<double>) plain_attention_score_gradients<double>;
template decltype(plain_attention_score_gradients<BFloat16>) plain_attention_score_gradients<BFloat16>;

}  // namespace tapeformer::kernels
