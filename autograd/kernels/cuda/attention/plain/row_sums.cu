#include <tapeformer/autograd/kernels/cuda/attention/plain/gradient.h>

namespace tapeformer::kernels {
namespace {

constexpr int kDeltaLanes = 8;  // that sum a row

/// delta = sum over e of dy y, in theory the sum over the keys of each weight times its gradient.
template <class T>
__global__ void attention_delta_kernel(AttentionShape s, const T* y, const T* dy, const Wide<T>* log_sum,
                                       Wide<T>* delta) {
  using W = Wide<T>;
  constexpr int kRows = kWarp / kDeltaLanes;
  const Index rows = s.batch * s.queries * s.heads;  // as they lie in memory
  for (Index first = (Index{blockIdx.x} * kBlock + threadIdx.x) / kWarp * kRows; first < rows;
       first += Index{gridDim.x} * kBlock / kWarp * kRows) {
    const Index row = first + own_lane() / kDeltaLanes, at = row * s.value_width;
    W sum = W(0);
    for (Index e = own_lane() % kDeltaLanes; row < rows && e < s.value_width; e += kDeltaLanes)
      sum += static_cast<W>(dy[at + e]) * static_cast<W>(y[at + e]);
    sum = warp_sum<kDeltaLanes>(sum);
    if (row >= rows || own_lane() % kDeltaLanes != 0) continue;
    const Index head = row % s.heads, t = row / s.heads % s.queries, b = row / s.heads / s.queries;
    const Index to = (b * s.heads + head) * s.queries + t;
    delta[to] = log_sum[to] == kMinusInfinity<W> ? W(0) : sum;
  }
}

/// The rows' sums computed from the weights, so that rounding errors cancel in the scores' gradient, and a
/// factor that makes the sum of the weights, and the sink's, one: exp(score - log_sum) adds up to one only
/// within the rounding of large scores. One block per tile of queries.
template <class Scores, class T>
__global__ void __launch_bounds__(kBlock)
    attention_shares_kernel(AttentionShape s, AttentionBackwardCase<T> x, Wide<T>* share, Wide<T>* delta) {
  using W = Wide<T>;
  __shared__ AttentionTile<W> tile;
  TilePlace place = place_of_queries<W>(s, blockIdx.x);

  load_statistics(s, x, place, tile);
  W totals[kPairs<W>] = {}, products[kPairs<W>] = {};
  for_each_seen_tile(s, tile, place, [&] {
    Pairs<W> weights, dweights, slopes;
    find_dweights<Scores, GradientOf::biases>(s, x, place, tile, weights, dweights, slopes);
    for_each_pair<W>([&](int i, int j) {
      totals[i] += weights[i][j];
      products[i] += weights[i][j] * dweights[i][j];
    });
  });
  __syncthreads();
  for (int i = 0; i < kPairs<W>; ++i) {
    tile.scores[own_row(i)][own_column(0)] = totals[i];
    tile.queries[own_row(i)][own_column(0)] = products[i];
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= place.queries) return;
  W total = W(0), product = W(0);
  for (int c = 0; c < kSide; ++c) {
    total += tile.scores[threadIdx.x][c];
    product += tile.queries[threadIdx.x][c];
  }
  const Index row = (place.b * s.heads + place.head) * s.queries + place.query + threadIdx.x;
  if (x.sinks != nullptr && total > W(0)) total += exp(x.sinks[place.head] - tile.log_sum[threadIdx.x]);
  share[row] = total > W(0) ? W(1) / total : W(1);
  delta[row] = share[row] * product;
}

template <class W>
__global__ void attention_add_parts_kernel(Index size, Index count, const W* parts, Write<W> to) {
  for_each_index(size, [&](Index i) {
    W sum = W(0);
    for (Index part = 0; part < count; ++part) sum += parts[part * size + i];
    to.put(i, sum);
  });
}

Index count_of_rows(const AttentionShape& s) {
  return s.weighting == AttentionWeighting::softmax ? s.batch * s.heads * s.queries : 0;
}

/// Additive scores and modified ones take the exact sums; plain products the cheap one. So do modified scores
/// in bf16 without an additive mask: the rounding of y is more than that of their exponentials.
template <class T>
bool takes_exact_sums(const AttentionShape& s, const AttentionOperands<T>& x) {
  return x.weight != nullptr || x.bias != nullptr || (is_modified(s, x) && sizeof(T) != 2);
}

}  // namespace

template <class T>
RowSums<T>::RowSums(Cuda on, const AttentionShape& s, AttentionBackwardCase<T>& x, const T* y)
    : delta(on, count_of_rows(s)), share(on, takes_exact_sums(s, x) ? count_of_rows(s) : 0) {
  if (count_of_rows(s) == 0) return;
  if (share.data() == nullptr) {
    launch(on, "attention_delta", attention_delta_kernel<T>, blocks_for(count_of_rows(s) * kDeltaLanes), s, y,
           x.dy, x.log_sum, delta.data());
  } else {
    with_scores(s, x, [&](auto scores) {
      using Scores = decltype(scores);
      if constexpr (Scores::kHasWeight || Scores::kIsModified)
        launch(on, "attention_shares", attention_shares_kernel<Scores, T>,
               s.batch * s.heads * tiles_of(s.queries, kTile<Wide<T>>), s, x, share.data(), delta.data());
    });
  }
  x.share = share.data(), x.delta = delta.data();
}

template <class W>
void add_parts(Cuda on, const char* name, Index size, Index count, const W* parts, Write<W> to) {
  launch(on, name, attention_add_parts_kernel<W>, blocks_for(size), size, count, parts, to);
}

template struct RowSums<float>;
template struct RowSums<double>;
template struct RowSums<BFloat16>;
template void add_parts(Cuda, const char*, Index, Index, const float*, Write<float>);
template void add_parts(Cuda, const char*, Index, Index, const double*, Write<double>);

}  // namespace tapeformer::kernels
