#include <tapeformer/autograd/kernels/cuda/attention/mma/backward.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr int kDeltaLanes = 8;  // lanes that sum a row

/// Computes the facts of queries, and of tiles of them, for the other kernels. `per_nat` is how many units of
/// scores a nat has.
template <class T>
__global__ void attention_mma_prepare_kernel(AttentionShape s, const T* y, const T* dy, const float* log_sum,
                                             float per_nat, PreparedQueries prepared) {
  const Index thread = Index{blockIdx.x} * kBlock + threadIdx.x, threads = Index{gridDim.x} * kBlock;
  const int lane = static_cast<int>(threadIdx.x) % kDeltaLanes;
  const Index rows = s.batch * prepared.padded * s.heads;  // a multiple of a warp's rows
  for (Index row = thread / kDeltaLanes; row < rows; row += threads / kDeltaLanes) {
    const Index head = row % s.heads, t = row / s.heads % prepared.padded,
                b = row / s.heads / prepared.padded;
    float sum = 0;
    for (Index e = lane * kPackSize<T>; t < s.queries && e < s.value_width; e += kDeltaLanes * kPackSize<T>) {
      const Index at = ((b * s.queries + t) * s.heads + head) * s.value_width + e;
      const auto ys = widened(load_pack<kPackSize<T>>(y + at)),
                 dys = widened(load_pack<kPackSize<T>>(dy + at));
#pragma unroll
      for (int i = 0; i < kPackSize<T>; i += 2) sum += ys.of[i] * dys.of[i] + ys.of[i + 1] * dys.of[i + 1];
    }
    sum = warp_sum<kDeltaLanes>(sum);
    if (lane != 0) continue;
    const float own = t < s.queries ? log_sum[(b * s.heads + head) * s.queries + t] : kNothing;
    const Index at = (b * s.heads + head) * prepared.padded + t;
    prepared.log_sums[at] = own == kNothing ? -kNothing : own * per_nat;
    prepared.deltas[at] = own == kNothing || s.weighting == AttentionWeighting::sigmoid ? 0 : sum;
    if (head == 0) prepared.ranges[b * prepared.padded + t] = range_of(s, b, t);
  }
  const Index tiles = s.batch * prepared.padded / kMoving;
  for (Index tile = thread / kWarp; tile < tiles; tile += threads / kWarp) {
    const Index b = tile / (prepared.padded / kMoving);
    JointRange joint;
    for (Index row = tile * kMoving + own_lane(); row < (tile + 1) * kMoving; row += kWarp) {
      const Index t = row - b * prepared.padded;
      if (t < s.queries) joint.add(range_of(s, b, t));
    }
    joint.join();
    if (own_lane() == 0) prepared.tiles[tile] = joint;
  }
}

/// One whose rounding is more than that of ordinary scores.
__device__ bool is_large(float log_sum) { return log_sum != kNothing && fabsf(log_sum) > 64.0f; }

/// Computes the shares of rows. Next to a large maximum the logarithm of a row's sum is rounded away: where a
/// mask of -1e9, say, covers all of a row. Only such rows are summed again, by one warp each.
template <class T>
__global__ void attention_mma_shares_kernel(AttentionShape s, MmaGradient<T> x, const float* log_sum) {
  const Index first = (Index{blockIdx.x} * kBlock + threadIdx.x) / kWarp, padded = x.prepared.padded;
  for (Index row = first; row < s.batch * s.heads * padded; row += Index{gridDim.x} * kBlock / kWarp) {
    const Index t = row % padded, head = row / padded % s.heads, b = row / padded / s.heads;
    const float own = t < s.queries ? log_sum[(b * s.heads + head) * s.queries + t] : kNothing;
    float share = 1;
    if (is_large(own)) {
      const T* const query = x.query + s.query.at(b, t, head);
      const float parameter = parameter_of(s, x.parameter, head);
      const SeenKeys range = range_of(s, static_cast<int>(b), static_cast<int>(t));
      float total = 0;
      for (int key = range.from + own_lane(); key < range.to; key += kWarp) {
        const T* const of_key = x.key + s.key.at(b, key, head / (s.heads / s.groups));
        float score = 0;
        for (Index i = 0; i < s.key_width; ++i) score += as_factor(query[i]) * as_factor(of_key[i]);
        score *= static_cast<float>(s.scale);
        with_function(s.function, [&](auto function) { score = function.value(score, parameter); });
        if (x.relative != nullptr) score += relative_row(s, x.relative, b, head, t)[key];
        if (may_see(s, x.bias, b, head, t, key, score)) total += expf(score - own);
      }
      total = warp_sum(total);
      if (x.sinks != nullptr) total += expf(x.sinks[head] - own);
      share = 1 / total;
    }
    if (own_lane() == 0) x.prepared.shares[row] = share;
  }
}

/// Calls f(case) when what it prepares is queued, unless the kernels do not support the case. Returns whether
/// they do. Their blocks have shared_bytes(width) bytes of shared memory, with the width of with_width().
template <class T, class SharedBytes, class F>
bool with_prepared(Cuda on, const AttentionShape& s, const AttentionOperands<T>& x, const T* y,
                   const float* log_sum, const T* dy, const AttentionGradients<T>& to,
                   SharedBytes&& shared_bytes, F&& f) {
  const Index width = std::max(s.key_width, s.value_width);
  const HeadStrides dense = output_strides(s);
  const auto is_aligned = [](const T* rows, const HeadStrides& strides, Index of_width) {
    return rows == nullptr || has_aligned_rows(rows, strides, of_width);
  };
  if (width == 0 || width > kWidestHead<T> || !is_aligned(x.query, s.query, s.key_width) ||
      !is_aligned(to.dquery.to, s.query, s.key_width) || !is_aligned(x.key, s.key, s.key_width) ||
      !is_aligned(to.dkey.to, s.key, s.key_width) || !is_aligned(x.value, s.value, s.value_width) ||
      !is_aligned(to.dvalue.to, s.value, s.value_width) || !is_aligned(y, dense, s.value_width) ||
      !is_aligned(dy, dense, s.value_width))
    return false;
  bool fits = false;
  with_width<T>(s, [&](auto of_block) { fits = shared_bytes(of_block) <= shared_room(on); });
  if (!fits) return false;

  const Index padded = tiles_of(s.queries, kPaddedQueries) * kPaddedQueries;
  const Index rows = s.batch * s.heads * padded;
  const Scratch<float> log_sums(on, rows), deltas(on, rows), shares(on, x.bias != nullptr ? rows : 0);
  const Scratch<SeenKeys> ranges(on, s.batch * padded);
  const Scratch<JointRange> tiles(on, s.batch * padded / kMoving);
  const MmaGradient<T> c{x,
                         to,
                         dy,
                         dense,
                         {padded, log_sums.data(), deltas.data(), x.bias != nullptr ? shares.data() : nullptr,
                          ranges.data(), tiles.data()}};
  const float per_nat = options_of(s, x) == MmaOptions::none ? kLog2E : 1.0f;
  launch(on, "attention_mma_prepare", attention_mma_prepare_kernel<T>, blocks_for(rows * kDeltaLanes), s, y,
         dy, log_sum, per_nat, c.prepared);
  if (x.bias != nullptr)
    launch(on, "attention_mma_shares", attention_mma_shares_kernel<T>, blocks_for(rows * kWarp), s, c,
           log_sum);
  f(c);
  return true;
}

}  // namespace

template <class T>
bool tensor_core_attention_backward(Cuda on, const AttentionShape& s, const AttentionOperands<T>& x,
                                    const T* y, const float* log_sum, const T* dy,
                                    const AttentionGradients<T>& to) {
  const auto shared = [](auto width) { return sizeof(BackwardShared<T, decltype(width)::value>); };
  return with_prepared(on, s, x, y, log_sum, dy, to, shared, [&](const MmaGradient<T>& c) {
    if (c.dkey || c.dvalue) attention_mma_dkey(on, s, c);
    if (c.dquery) attention_mma_dquery(on, s, c);
  });
}

template <class T>
bool tensor_core_relative_gradient(Cuda on, const AttentionShape& s, const AttentionOperands<T>& x,
                                   const T* y, const float* log_sum, const T* dy,
                                   const Write<float>& drelative) {
  const auto shared = [](auto width) { return sizeof(RelativeShared<T, decltype(width)::value>); };
  return with_prepared(on, s, x, y, log_sum, dy, AttentionGradients<T>{}, shared,
                       [&](const MmaGradient<T>& c) { attention_mma_drelative(on, s, c, drelative); });
}

template decltype(tensor_core_attention_backward<BFloat16>) tensor_core_attention_backward<BFloat16>;
template decltype(tensor_core_relative_gradient<BFloat16>) tensor_core_relative_gradient<BFloat16>;
template decltype(tensor_core_attention_backward<float>) tensor_core_attention_backward<float>;
template decltype(tensor_core_relative_gradient<float>) tensor_core_relative_gradient<float>;

}  // namespace tapeformer::kernels
