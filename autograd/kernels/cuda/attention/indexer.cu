#include <tapeformer/autograd/kernels/cuda/attention/sparse_mma.h>
#include <tapeformer/autograd/kernels/cuda/attention/sparse_warps.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tapeformer::kernels {
namespace {

template <class T>
__device__ Wide<T> index_score(const IndexSizes& s, const T* query, const T* key, const T* weights) {
  Wide<T> sum = 0;
  for (Index h = 0; h < s.heads; ++h) {
    const Wide<T> z = product(s.width, query + h * s.width, key);
    if (z > Wide<T>(0)) sum += static_cast<Wide<T>>(weights[h]) * z;
  }
  return static_cast<Wide<T>>(s.scale) * sum;
}

/// The scores [rows, S] of the queries from `first` on.
template <class T>
__global__ void all_index_scores_kernel(KeysOfQueries keys, IndexSizes s, Index first, Index rows,
                                        const T* query, const T* key, const T* weights, Wide<T>* scores) {
  for_each_index(rows * keys.keys, [&](Index i) {
    const Index row = first + i / keys.keys, position = i % keys.keys;
    if (s.from != nullptr && (position < s.from[row] || position >= s.to[row])) return;
    const Index at = row / keys.queries * keys.keys + position;
    scores[i] = index_score(s, query + row * s.heads * s.width, key + at * s.width, weights + row * s.heads);
  });
}

template <class W>
using OrderedBits = std::conditional_t<sizeof(W) == 4, std::uint32_t, std::uint64_t>;

/// The number as an unsigned one of the same size and order; NaN is `nan`, and both zeros are one.
template <class W>
__device__ OrderedBits<W> ordered_bits(W x, W nan) {
  const W number = x != x ? nan : x == W(0) ? W(0) : x;
  OrderedBits<W> bits;
  memcpy(&bits, &number, sizeof bits);
  constexpr auto kSign = static_cast<OrderedBits<W>>(OrderedBits<W>{1} << (8 * sizeof(W) - 1));
  return bits & kSign ? ~bits : bits | kSign;
}

/// A block chooses for each row: it finds the least chosen score digit by digit, and then writes keys in
/// order. NaN counts as `nan`.
template <class W>
__global__ void choose_keys_kernel(KeysOfQueries keys, IndexSizes s, Index first, const W* scores, W nan) {
  __shared__ Index before[kSparseWarps][2];
  const Index row = first + blockIdx.x, start = row / keys.queries * keys.keys;
  const W* const own = scores + Index{blockIdx.x} * keys.keys;
  const Index from = s.from != nullptr ? s.from[row] : 0, to = s.to != nullptr ? s.to[row] : keys.keys;
  const auto is_seen = [&](Index i) { return i < to && (s.key_mask == nullptr || s.key_mask[start + i]); };
  __shared__ int of_digits[kBlock], seen, found[2];
  constexpr int kBits = 8 * sizeof(W), kDigit = 8;
  static_assert(kBlock == 1 << kDigit, "a thread for each digit");
  OrderedBits<W> least = 0;
  // Larger scores are all chosen; the first that equal the least one fill the places left.
  int equal = static_cast<int>(keys.top_k);
  const int thread = static_cast<int>(threadIdx.x);
  for (int shift = kBits - kDigit; shift >= 0; shift -= kDigit) {
    of_digits[thread] = 0;
    __syncthreads();
    for (Index i = from + thread; i < to; i += kBlock) {
      const OrderedBits<W> bits = is_seen(i) ? ordered_bits(own[i], nan) : 0;
      const bool is_candidate =
          shift == kBits - kDigit || bits >> shift >> kDigit == least >> shift >> kDigit;
      if (is_seen(i) && is_candidate) atomicAdd(&of_digits[bits >> shift & (kBlock - 1)], 1);
    }
    __syncthreads();
    int larger = 0;
    for (int digit = thread + 1; digit < kBlock; ++digit) larger += of_digits[digit];
    const int as_large = larger + of_digits[thread];
    if (thread == 0) seen = as_large;
    if (larger < equal && as_large >= equal) found[0] = thread, found[1] = equal - larger;
    __syncthreads();
    if (seen < equal) break;  // all are chosen
    least |= static_cast<OrderedBits<W>>(found[0]) << shift, equal = found[1];
    __syncthreads();
  }
  Index chosen = 0, equals = 0;  // so far, the same in all threads
  std::int32_t* const places = keys.chosen + row * keys.top_k;
  for (Index tile = from; tile < to; tile += kBlock) {
    const Index i = tile + threadIdx.x;
    const OrderedBits<W> bits = is_seen(i) ? ordered_bits(own[i], nan) : 0;
    const bool is_equal = is_seen(i) && bits == least, is_larger = is_seen(i) && bits > least;
    const unsigned lanes_before = (1U << own_lane()) - 1, equal_votes = __ballot_sync(kAllLanes, is_equal);
    if (own_lane() == 0) before[own_warp()][0] = __popc(equal_votes);
    __syncthreads();
    Index rank = equals + __popc(equal_votes & lanes_before);
    for (int warp = 0; warp < own_warp(); ++warp) rank += before[warp][0];
    for (int warp = 0; warp < kSparseWarps; ++warp) equals += before[warp][0];
    const bool takes = is_larger || (is_equal && rank < equal);
    const unsigned votes = __ballot_sync(kAllLanes, takes);
    if (own_lane() == 0) before[own_warp()][1] = __popc(votes);
    __syncthreads();
    Index place = chosen + __popc(votes & lanes_before);
    for (int warp = 0; warp < own_warp(); ++warp) place += before[warp][1];
    for (int warp = 0; warp < kSparseWarps; ++warp) chosen += before[warp][1];
    if (takes) places[place] = static_cast<std::int32_t>(start + i);
  }
  for (Index place = chosen + threadIdx.x; place < keys.top_k; place += kBlock)
    places[place] = static_cast<std::int32_t>(keys.all_keys());
}

template <class T>
__global__ void index_scores_kernel(KeysOfQueries keys, IndexSizes s, const T* query, const T* key,
                                    const T* weights, Wide<T>* scores) {
  for_each_index(keys.rows() * keys.top_k, [&](Index i) {
    const Index row = i / keys.top_k, own = keys.chosen[i];
    scores[i] = own == keys.all_keys() ? static_cast<Wide<T>>(kNoScore)
                                       : index_score(s, query + row * s.heads * s.width, key + own * s.width,
                                                     weights + row * s.heads);
  });
}

/// A warp for each query and head.
template <class T>
__global__ void index_query_gradients_kernel(KeysOfQueries keys, IndexSizes s, const T* query, const T* key,
                                             const T* weights, const Wide<T>* dscores, Write<T> dquery,
                                             Write<T> dweights) {
  using W = Wide<T>;
  W* const sums = own_sums<W>(s.width);
  for_each_row<WarpTeam>(keys.rows() * s.heads, [&](Index i) {
    const Index row = i / s.heads, count = keys.count(row);
    const W scale = static_cast<W>(s.scale), factor = scale * static_cast<W>(weights[i]);
    W dweight = 0;
    for_own(s.width, [&](Index d) { sums[d] = 0; });
    for (Index j = 0; j < count; ++j) {
      const T* const own = key + keys.of(row)[j] * s.width;
      const W z = warp_product(s.width, query + i * s.width, own), slope = dscores[row * keys.top_k + j];
      if (!(z > W(0))) continue;
      dweight += scale * slope * z;
      for_own(s.width, [&](Index d) { sums[d] += factor * slope * static_cast<W>(own[d]); });
    }
    if (dquery) for_own(s.width, [&](Index d) { dquery.put(i * s.width + d, sums[d]); });
    if (dweights && own_lane() == 0) dweights.put(i, dweight);
  });
}

/// A warp for each key.
template <class T>
__global__ void index_key_gradients_kernel(KeysOfQueries keys, IndexSizes s, Choices choices, const T* query,
                                           const T* key, const T* weights, const Wide<T>* dscores,
                                           Write<T> dkey) {
  using W = Wide<T>;
  W* const sums = own_sums<W>(s.width);
  for_each_row<WarpTeam>(keys.all_keys(), [&](Index own) {
    for_own(s.width, [&](Index d) { sums[d] = 0; });
    const Index end = choices.first(own + 1);
    for (Index at = choices.first(own); at < end; ++at) {
      const Index place = choices.places[at], row = place / keys.top_k;
      const W slope = static_cast<W>(s.scale) * dscores[place];
      for (Index h = 0; h < s.heads; ++h) {
        const T* const head = query + (row * s.heads + h) * s.width;
        if (!(warp_product(s.width, head, key + own * s.width) > W(0))) continue;
        const W factor = slope * static_cast<W>(weights[row * s.heads + h]);
        for_own(s.width, [&](Index d) { sums[d] += factor * static_cast<W>(head[d]); });
      }
    }
    for_own(s.width, [&](Index d) { dkey.put(own * s.width + d, sums[d]); });
  });
}

SparseOperands operands_of(const KeysOfQueries& keys, const IndexSizes& s, const BFloat16* query,
                           const BFloat16* key) {
  return {keys, {s.heads, s.width, 0, s.scale}, query, key, nullptr};
}

}  // namespace

template <class T>
void choose_keys(Cuda on, const KeysOfQueries& keys, const IndexSizes& sizes, const T* query, const T* key,
                 const T* weights) {
  constexpr Index kMostScores = Index{1} << 26;  // at a time
  if (keys.keys == 0) return;
  const Index together = std::clamp<Index>(kMostScores / keys.keys, 1, std::max<Index>(keys.rows(), 1));
  const Scratch<Wide<T>> scores(on, together * keys.keys);
  for (Index first = 0; first < keys.rows(); first += together) {
    const Index rows = std::min(together, keys.rows() - first);
    bool is_done = false;
    if constexpr (std::is_same_v<T, BFloat16>)
      is_done = all_index_scores_mma(on, operands_of(keys, sizes, query, key), sizes, first, rows, weights,
                                     scores.data());
    if (!is_done)
      launch(on, "all_index_scores", all_index_scores_kernel<T>, blocks_for(rows * keys.keys), keys, sizes,
             first, rows, query, key, weights, scores.data());
    launch(on, "choose_keys", choose_keys_kernel<Wide<T>>, rows, keys, sizes, first, scores.data(),
           kMinusInfinity<Wide<T>>);
  }
}

template <class T>
void choose_largest(Cuda on, const KeysOfQueries& keys, const T* scores) {
  launch(on, "choose_largest", choose_keys_kernel<T>, keys.rows(), keys, IndexSizes{}, Index{0}, scores,
         -kMinusInfinity<T>);
}

template <class T>
void index_scores_forward(Cuda on, const KeysOfQueries& keys, const IndexSizes& sizes, const T* query,
                          const T* key, const T* weights, Wide<T>* scores) {
  if constexpr (std::is_same_v<T, BFloat16>)
    if (index_scores_mma(on, operands_of(keys, sizes, query, key), weights, scores)) return;
  launch(on, "index_scores", index_scores_kernel<T>, blocks_for(keys.rows() * keys.top_k), keys, sizes, query,
         key, weights, scores);
}

template <class T>
void index_scores_backward(Cuda on, const KeysOfQueries& keys, const IndexSizes& sizes, const T* query,
                           const T* key, const T* weights, const Wide<T>* dscores, Write<T> dquery,
                           Write<T> dkey, Write<T> dweights) {
  using W = Wide<T>;
  if constexpr (std::is_same_v<T, BFloat16>)
    if (index_scores_mma_backward(on, operands_of(keys, sizes, query, key), weights, dscores, dquery, dkey,
                                  dweights))
      return;
  if (dquery || dweights)
    launch(on, "index_query_gradients", index_query_gradients_kernel<T>,
           warps_for<W>(keys.rows() * sizes.heads, sizes.width), keys, sizes, query, key, weights, dscores,
           dquery, dweights);
  if (!dkey) return;
  const SortedKeys sorted(on, keys.rows() * keys.top_k, keys.all_keys(), keys.chosen);
  launch(on, "index_key_gradients", index_key_gradients_kernel<T>, warps_for<W>(keys.all_keys(), sizes.width),
         keys, sizes, choices_of(keys, sorted), query, key, weights, dscores, dkey);
}

TAPEFORMER_CUDA_KERNEL(choose_keys);
TAPEFORMER_WIDE_KERNEL(Cuda, choose_largest);
TAPEFORMER_CUDA_KERNEL(index_scores_forward);
TAPEFORMER_CUDA_KERNEL(index_scores_backward);

}  // namespace tapeformer::kernels
