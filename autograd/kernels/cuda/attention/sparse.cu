#include <tapeformer/autograd/kernels/cuda/attention/sparse_mma.h>
#include <tapeformer/autograd/kernels/cuda/attention/sparse_warps.h>

#include <cmath>
#include <type_traits>

namespace tapeformer::kernels {
namespace {

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

}  // namespace

template <class T>
void sparse_attention_forward(Cuda on, const KeysOfQueries& keys, const SparseSizes& sizes, const T* query,
                              const T* latents, T* y, Wide<T>* shares) {
  using W = Wide<T>;
  if constexpr (std::is_same_v<T, BFloat16>)
    if (sparse_mma_forward(on, {keys, sizes, query, latents, nullptr}, y, shares)) return;
  const Index rows = keys.rows() * sizes.heads;
  const Scratch<W> log_sums(on, rows);
  launch(on, "sparse_forward", sparse_forward_kernel<T>, warps_for<W>(rows, sizes.value_width), keys, sizes,
         query, latents, y, log_sums.data());
  if (shares != nullptr)
    launch(on, "key_shares", key_shares_kernel<T>, blocks_for(keys.rows() * keys.top_k), keys, sizes, query,
           latents, log_sums.data(), shares);
}

template <class T>
void sparse_attention_backward(Cuda on, const KeysOfQueries& keys, const SparseSizes& sizes, const T* query,
                               const T* latents, const T* dy, Write<T> dquery, Write<T> dlatents) {
  using W = Wide<T>;
  if constexpr (std::is_same_v<T, BFloat16>)
    if (sparse_mma_backward(on, {keys, sizes, query, latents, dy}, dquery, dlatents)) return;
  const Index rows = keys.rows() * sizes.heads;
  const Scratch<W> log_sums(on, rows), means(on, rows);
  launch(on, "sparse_query_gradients", sparse_query_gradients_kernel<T>, warps_for<W>(rows, sizes.width),
         keys, sizes, query, latents, dy, log_sums.data(), means.data(), dquery);
  if (!dlatents) return;
  const SortedKeys sorted(on, keys.rows() * keys.top_k, keys.all_keys(), keys.chosen);
  launch(on, "sparse_latent_gradients", sparse_latent_gradients_kernel<T>,
         warps_for<W>(keys.all_keys(), sizes.width), keys, sizes, choices_of(keys, sorted), query, latents,
         dy, log_sums.data(), means.data(), dlatents);
}

void write_pairs_of_keys(Cuda on, const KeysOfQueries& keys, bool* pairs) {
  cuda::fill(on.device, DType::boolean, keys.rows() * keys.keys, 0, pairs);
  launch(on, "pairs_of_keys", pairs_of_keys_kernel, blocks_for(keys.rows() * keys.top_k), keys, pairs);
}

TAPEFORMER_CUDA_KERNEL(sparse_attention_forward);
TAPEFORMER_CUDA_KERNEL(sparse_attention_backward);

}  // namespace tapeformer::kernels
