#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// The keys of each query, K at most, which all heads share: indices among the B S keys of all sequences,
/// in ascending order. Places that are left hold B S.
struct KeysOfQueries {
  Index batch = 0, queries = 0, keys = 0;  // B, T, S
  Index top_k = 0;                         // K
  std::int32_t* chosen = nullptr;          // [B, T, K]

  TAPEFORMER_HOST_DEVICE Index rows() const { return batch * queries; }
  TAPEFORMER_HOST_DEVICE Index all_keys() const { return batch * keys; }
  TAPEFORMER_HOST_DEVICE const std::int32_t* of(Index row) const { return chosen + row * top_k; }
  /// The number of a query's keys.
  TAPEFORMER_HOST_DEVICE Index count(Index row) const {
    const std::int32_t* const own = of(row);
    Index low = 0, high = top_k;
    while (low < high) {
      const Index middle = (low + high) / 2;
      if (own[middle] < all_keys())
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

/// The heads of an indexer, and the keys that queries may see.
struct IndexSizes {
  Index heads = 0, width = 0;  // H, D
  double scale = 1;
  const std::int32_t *from = nullptr, *to = nullptr;  // [B, T]; nullptr for all keys
  const bool* key_mask = nullptr;                     // [B, S]
};

/// The score of a place without a key, so low that a softmax makes it zero.
constexpr double kNoScore = -1e30;

/// keys.chosen: the K visible keys with the largest scores, of equal scores the first ones, with
/// score = scale sum_h weights[h] relu(query[h] . key); NaN counts as minus infinity.
/// query [B, T, H, D], key [B, S, D], weights [B, T, H]
TAPEFORMER_KERNEL(choose_keys, const KeysOfQueries& keys, const IndexSizes& sizes, const T* query,
                  const T* key, const T* weights);

/// keys.chosen: the K keys with the largest scores [B, T, S], of equal scores the first ones; NaN counts as
/// infinity. K is at most S.
TAPEFORMER_KERNEL(choose_largest, const KeysOfQueries& keys, const T* scores);

/// scores [B, T, K] of the chosen keys; kNoScore in places that are left.
TAPEFORMER_KERNEL(index_scores_forward, const KeysOfQueries& keys, const IndexSizes& sizes, const T* query,
                  const T* key, const T* weights, Wide<T>* scores);
TAPEFORMER_KERNEL(index_scores_backward, const KeysOfQueries& keys, const IndexSizes& sizes, const T* query,
                  const T* key, const T* weights, const Wide<T>* dscores, Write<T> dquery, Write<T> dkey,
                  Write<T> dweights);

/// The heads of attention to latents, which are keys and, in their first E values, values.
struct SparseSizes {
  Index heads = 0, width = 0, value_width = 0;  // H, N, E
  double scale = 1;
};

/// y [B, T, H, E] of query [B, T, H, N] and latents [B, S, N]; shares [B, T, K], unless it is nullptr: the
/// mean over heads of each key's weights.
TAPEFORMER_KERNEL(sparse_attention_forward, const KeysOfQueries& keys, const SparseSizes& sizes,
                  const T* query, const T* latents, T* y, Wide<T>* shares);
TAPEFORMER_KERNEL(sparse_attention_backward, const KeysOfQueries& keys, const SparseSizes& sizes,
                  const T* query, const T* latents, const T* dy, Write<T> dquery, Write<T> dlatents);

/// pairs [B, T, S]: whether the query has chosen the key.
TAPEFORMER_PLAIN_KERNEL(write_pairs_of_keys, const KeysOfQueries& keys, bool* pairs);

}  // namespace tapeformer::kernels
