#include <tapeformer/autograd/kernels/cuda/rows.h>
#include <tapeformer/autograd/kernels/cuda/sort.h>
#include <tapeformer/autograd/kernels/sparse_attention.h>

#include <cmath>
#include <cstdint>

// A warp for each query and head, or for each key, which sums gradients in the order of the queries.

namespace tapeformer::kernels {
namespace {

constexpr Index kWarps = kBlock / kWarp;

/// The blocks of `count` warps, each with `width` numbers of shared memory.
template <class W>
Grid warps_for(Index count, Index width) {
  return {std::min<Index>(tiles_of(count, kWarps), 65536), kBlock,
          static_cast<std::size_t>(kWarps * width) * sizeof(W)};
}

/// A warp's numbers: lane l alone uses l, l + 32 and so on.
template <class W>
__device__ W* own_sums(Index width) {
  return dynamic_shared<W>() + own_warp() * width;
}
template <class F>
__device__ void for_own(Index width, F&& f) {
  for (Index i = own_lane(); i < width; i += kWarp) f(i);
}

/// a . b, to every lane of the warp.
template <class T>
__device__ Wide<T> warp_product(Index width, const T* a, const T* b) {
  Wide<T> sum = 0;
  for_own(width, [&](Index i) { sum += static_cast<Wide<T>>(a[i]) * static_cast<Wide<T>>(b[i]); });
  return warp_sum(sum);
}
template <class T>
__device__ Wide<T> product(Index width, const T* a, const T* b) {
  Wide<T> sum = 0;
  for (Index i = 0; i < width; ++i) sum += static_cast<Wide<T>>(a[i]) * static_cast<Wide<T>>(b[i]);
  return sum;
}

/// Queries that chose one key, by the numbers of their choices, ascending.
struct Choices {
  const std::int32_t *keys, *places;  // all choices, sorted by key
  Index count;

  /// The first place whose key is `key` or more.
  __device__ Index first(Index key) const {
    Index low = 0, high = count;
    while (low < high) {
      const Index middle = (low + high) / 2;
      if (keys[middle] < key)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};
Choices choices_of(const KeysOfQueries& keys, const SortedKeys& sorted) {
  return {sorted.keys(), sorted.positions(), keys.rows() * keys.top_k};
}

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

/// Bits in the order of the numbers; NaN is minus infinity, and both zeros are one.
__device__ std::uint64_t ordered_bits(double x) {
  const double number = x != x ? kMinusInfinity<double> : x == 0 ? 0 : x;
  std::uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  return bits & kSign ? ~bits : bits | kSign;
}

/// A block chooses for each row: it finds the least chosen score bit by bit, and then writes the keys in order.
template <class W>
__global__ void choose_keys_kernel(KeysOfQueries keys, IndexSizes s, Index first, const W* scores) {
  __shared__ Index before[kWarps][2];
  const Index row = first + blockIdx.x, start = row / keys.queries * keys.keys;
  const W* const own = scores + Index{blockIdx.x} * keys.keys;
  const Index from = s.from != nullptr ? s.from[row] : 0, to = s.to != nullptr ? s.to[row] : keys.keys;
  const auto is_seen = [&](Index i) { return i < to && (s.key_mask == nullptr || s.key_mask[start + i]); };
  const auto count = [&](const auto& holds) {
    Index sum = 0;
    for (Index i = from + threadIdx.x; i < to; i += kBlock) sum += is_seen(i) && holds(i) ? 1 : 0;
    return block_sum(sum);
  };
  std::uint64_t least = 0;
  if (count([](Index) { return true; }) > keys.top_k) {
    for (int bit = 63; bit >= 0; --bit) {
      const std::uint64_t larger = least | std::uint64_t{1} << bit;
      if (count([&](Index i) { return ordered_bits(own[i]) >= larger; }) >= keys.top_k) least = larger;
    }
  }
  // Of scores equal to the least one, the first ones fill the places that larger ones leave.
  const Index equal = keys.top_k - count([&](Index i) { return ordered_bits(own[i]) > least; });
  Index chosen = 0, equals = 0;  // so far, the same in all threads
  std::int32_t* const places = keys.chosen + row * keys.top_k;
  for (Index tile = from; tile < to; tile += kBlock) {
    const Index i = tile + threadIdx.x;
    const std::uint64_t bits = is_seen(i) ? ordered_bits(own[i]) : 0;
    const bool is_equal = is_seen(i) && bits == least, is_larger = is_seen(i) && bits > least;
    const unsigned lanes_before = (1U << own_lane()) - 1, equal_votes = __ballot_sync(kAllLanes, is_equal);
    if (own_lane() == 0) before[own_warp()][0] = __popc(equal_votes);
    __syncthreads();
    Index rank = equals + __popc(equal_votes & lanes_before);
    for (int warp = 0; warp < own_warp(); ++warp) rank += before[warp][0];
    for (int warp = 0; warp < kWarps; ++warp) equals += before[warp][0];
    const bool takes = is_larger || (is_equal && rank < equal);
    const unsigned votes = __ballot_sync(kAllLanes, takes);
    if (own_lane() == 0) before[own_warp()][1] = __popc(votes);
    __syncthreads();
    Index place = chosen + __popc(votes & lanes_before);
    for (int warp = 0; warp < own_warp(); ++warp) place += before[warp][1];
    for (int warp = 0; warp < kWarps; ++warp) chosen += before[warp][1];
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

/// A warp for each query and head; the softmax is computed in one pass.
template <class T>
__global__ void sparse_forward_kernel(KeysOfQueries keys, SparseSizes s, const T* query, const T* latents,
                                      T* y, Wide<T>* log_sums) {
  using W = Wide<T>;
  W* const sums = own_sums<W>(s.value_width);
  for_each_row<WarpTeam>(keys.rows() * s.heads, [&](Index i) {
    const Index row = i / s.heads, count = keys.count(row);
    W largest = kMinusInfinity<W>, total = 0;
    for_own(s.value_width, [&](Index e) { sums[e] = 0; });
    for (Index j = 0; j < count; ++j) {
      const T* const own = latents + keys.of(row)[j] * s.width;
      const W score = static_cast<W>(s.scale) * warp_product(s.width, query + i * s.width, own);
      const W most = score > largest ? score : largest, shrink = std::exp(largest - most),
              weight = std::exp(score - most);
      largest = most, total = total * shrink + weight;
      for_own(s.value_width, [&](Index e) { sums[e] = sums[e] * shrink + weight * static_cast<W>(own[e]); });
    }
    for_own(s.value_width,
            [&](Index e) { y[i * s.value_width + e] = static_cast<T>(count > 0 ? sums[e] / total : W(0)); });
    if (own_lane() == 0) log_sums[i] = largest + std::log(total);
  });
}

template <class T>
__global__ void key_shares_kernel(KeysOfQueries keys, SparseSizes s, const T* query, const T* latents,
                                  const Wide<T>* log_sums, Wide<T>* shares) {
  using W = Wide<T>;
  for_each_index(keys.rows() * keys.top_k, [&](Index i) {
    const Index row = i / keys.top_k, own = keys.chosen[i];
    W sum = 0;
    for (Index h = row * s.heads; own < keys.all_keys() && h < (row + 1) * s.heads; ++h)
      sum +=
          std::exp(static_cast<W>(s.scale) * product(s.width, query + h * s.width, latents + own * s.width) -
                   log_sums[h]);
    shares[i] = sum / static_cast<W>(s.heads);
  });
}

/// A warp for each query and head: the sums of its row, and dquery.
template <class T>
__global__ void sparse_query_gradients_kernel(KeysOfQueries keys, SparseSizes s, const T* query,
                                              const T* latents, const T* dy, Wide<T>* log_sums,
                                              Wide<T>* means, Write<T> dquery) {
  using W = Wide<T>;
  W* const sums = own_sums<W>(s.width);
  for_each_row<WarpTeam>(keys.rows() * s.heads, [&](Index i) {
    const Index row = i / s.heads, count = keys.count(row);
    const W scale = static_cast<W>(s.scale);
    const auto latent = [&](Index j) { return latents + keys.of(row)[j] * s.width; };
    const auto score = [&](Index j) { return scale * warp_product(s.width, query + i * s.width, latent(j)); };
    const auto dweight = [&](Index j) {
      return warp_product(s.value_width, dy + i * s.value_width, latent(j));
    };
    W largest = kMinusInfinity<W>, total = 0, mean = 0;
    for (Index j = 0; j < count; ++j) {
      const W own = score(j), most = own > largest ? own : largest, shrink = std::exp(largest - most),
              weight = std::exp(own - most);
      largest = most, total = total * shrink + weight, mean = mean * shrink + weight * dweight(j);
    }
    const W log_sum = largest + std::log(total);
    mean = count > 0 ? mean / total : W(0);
    if (own_lane() == 0) log_sums[i] = log_sum, means[i] = mean;
    if (!dquery) return;
    for_own(s.width, [&](Index n) { sums[n] = 0; });
    for (Index j = 0; j < count; ++j) {
      const W slope = std::exp(score(j) - log_sum) * (dweight(j) - mean) * scale;
      for_own(s.width, [&](Index n) { sums[n] += slope * static_cast<W>(latent(j)[n]); });
    }
    for_own(s.width, [&](Index n) { dquery.put(i * s.width + n, sums[n]); });
  });
}

/// A warp for each key.
template <class T>
__global__ void sparse_latent_gradients_kernel(KeysOfQueries keys, SparseSizes s, Choices choices,
                                               const T* query, const T* latents, const T* dy,
                                               const Wide<T>* log_sums, const Wide<T>* means,
                                               Write<T> dlatents) {
  using W = Wide<T>;
  W* const sums = own_sums<W>(s.width);
  for_each_row<WarpTeam>(keys.all_keys(), [&](Index own) {
    const T* const latent = latents + own * s.width;
    const W scale = static_cast<W>(s.scale);
    for_own(s.width, [&](Index n) { sums[n] = 0; });
    const Index end = choices.first(own + 1);
    for (Index at = choices.first(own); at < end; ++at) {
      const Index row = choices.places[at] / keys.top_k;
      for (Index h = row * s.heads; h < (row + 1) * s.heads; ++h) {
        const T *const of_query = query + h * s.width, *const of_dy = dy + h * s.value_width;
        const W weight = std::exp(scale * warp_product(s.width, of_query, latent) - log_sums[h]),
                slope = weight * (warp_product(s.value_width, of_dy, latent) - means[h]) * scale;
        for_own(s.width, [&](Index n) {
          sums[n] += slope * static_cast<W>(of_query[n]) +
                     (n < s.value_width ? weight * static_cast<W>(of_dy[n]) : W(0));
        });
      }
    }
    for_own(s.width, [&](Index n) { dlatents.put(own * s.width + n, sums[n]); });
  });
}

__global__ void pairs_of_keys_kernel(KeysOfQueries keys, bool* pairs) {
  for_each_index(keys.rows() * keys.top_k, [&](Index i) {
    const Index row = i / keys.top_k, own = keys.chosen[i];
    if (own < keys.all_keys()) pairs[row * keys.keys + own - row / keys.queries * keys.keys] = true;
  });
}
__global__ void no_pairs_kernel(Index count, bool* pairs) {
  for_each_index(count, [&](Index i) { pairs[i] = false; });
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
    launch(on, "all_index_scores", all_index_scores_kernel<T>, blocks_for(rows * keys.keys), keys, sizes,
           first, rows, query, key, weights, scores.data());
    launch(on, "choose_keys", choose_keys_kernel<Wide<T>>, rows, keys, sizes, first,
           static_cast<const Wide<T>*>(scores.data()));
  }
}

template <class T>
void index_scores_forward(Cuda on, const KeysOfQueries& keys, const IndexSizes& sizes, const T* query,
                          const T* key, const T* weights, Wide<T>* scores) {
  launch(on, "index_scores", index_scores_kernel<T>, blocks_for(keys.rows() * keys.top_k), keys, sizes, query,
         key, weights, scores);
}

template <class T>
void index_scores_backward(Cuda on, const KeysOfQueries& keys, const IndexSizes& sizes, const T* query,
                           const T* key, const T* weights, const Wide<T>* dscores, Write<T> dquery,
                           Write<T> dkey, Write<T> dweights) {
  using W = Wide<T>;
  if (dquery || dweights)
    launch(on, "index_query_gradients", index_query_gradients_kernel<T>,
           warps_for<W>(keys.rows() * sizes.heads, sizes.width), keys, sizes, query, key, weights, dscores,
           dquery, dweights);
  if (!dkey) return;
  const SortedKeys sorted(on, keys.rows() * keys.top_k, keys.all_keys(), keys.chosen);
  launch(on, "index_key_gradients", index_key_gradients_kernel<T>, warps_for<W>(keys.all_keys(), sizes.width),
         keys, sizes, choices_of(keys, sorted), query, key, weights, dscores, dkey);
}

template <class T>
void sparse_attention_forward(Cuda on, const KeysOfQueries& keys, const SparseSizes& sizes, const T* query,
                              const T* latents, T* y, Wide<T>* shares) {
  using W = Wide<T>;
  const Index rows = keys.rows() * sizes.heads;
  const Scratch<W> log_sums(on, rows);
  launch(on, "sparse_forward", sparse_forward_kernel<T>, warps_for<W>(rows, sizes.value_width), keys, sizes,
         query, latents, y, log_sums.data());
  if (shares != nullptr)
    launch(on, "key_shares", key_shares_kernel<T>, blocks_for(keys.rows() * keys.top_k), keys, sizes, query,
           latents, static_cast<const W*>(log_sums.data()), shares);
}

template <class T>
void sparse_attention_backward(Cuda on, const KeysOfQueries& keys, const SparseSizes& sizes, const T* query,
                               const T* latents, const T* dy, Write<T> dquery, Write<T> dlatents) {
  using W = Wide<T>;
  const Index rows = keys.rows() * sizes.heads;
  const Scratch<W> log_sums(on, rows), means(on, rows);
  launch(on, "sparse_query_gradients", sparse_query_gradients_kernel<T>, warps_for<W>(rows, sizes.width),
         keys, sizes, query, latents, dy, log_sums.data(), means.data(), dquery);
  if (!dlatents) return;
  const SortedKeys sorted(on, keys.rows() * keys.top_k, keys.all_keys(), keys.chosen);
  launch(on, "sparse_latent_gradients", sparse_latent_gradients_kernel<T>,
         warps_for<W>(keys.all_keys(), sizes.width), keys, sizes, choices_of(keys, sorted), query, latents,
         dy, static_cast<const W*>(log_sums.data()), static_cast<const W*>(means.data()), dlatents);
}

void write_pairs_of_keys(Cuda on, const KeysOfQueries& keys, bool* pairs) {
  const Index count = keys.rows() * keys.keys;
  launch(on, "no_pairs", no_pairs_kernel, blocks_for(count), count, pairs);
  launch(on, "pairs_of_keys", pairs_of_keys_kernel, blocks_for(keys.rows() * keys.top_k), keys, pairs);
}

#define INSTANTIATE(T)                                                                                       \
  template void choose_keys(Cuda, const KeysOfQueries&, const IndexSizes&, const T*, const T*, const T*);    \
  template void index_scores_forward(Cuda, const KeysOfQueries&, const IndexSizes&, const T*, const T*,      \
                                     const T*, Wide<T>*);                                                    \
  template void index_scores_backward(Cuda, const KeysOfQueries&, const IndexSizes&, const T*, const T*,     \
                                      const T*, const Wide<T>*, Write<T>, Write<T>, Write<T>);               \
  template void sparse_attention_forward(Cuda, const KeysOfQueries&, const SparseSizes&, const T*, const T*, \
                                         T*, Wide<T>*);                                                      \
  template void sparse_attention_backward(Cuda, const KeysOfQueries&, const SparseSizes&, const T*,          \
                                          const T*, const T*, Write<T>, Write<T>);
TAPEFORMER_CUDA_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
