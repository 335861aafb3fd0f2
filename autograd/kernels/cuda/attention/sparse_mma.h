#pragma once

#include <tapeformer/autograd/kernels/sparse_attention.h>

#include <functional>

namespace tapeformer::kernels {

/// The arguments of sparse_attention_forward() and, with dy, of sparse_attention_backward(); or an indexer's
/// queries and keys.
struct SparseOperands {
  KeysOfQueries keys;
  SparseSizes sizes;
  const BFloat16 *query, *latents, *dy;
};

/// The most numbers that the gradients of pairs take at a time.
constexpr Index kMostPairParts = Index{1} << 27;

/// Kernels of sparse_attention.h on tensor cores. They return false, and do nothing, where the sizes or the
/// device do not suit them. The gradients of pairs of a query and a key take `most_parts` numbers at a time.
bool sparse_mma_forward(Cuda on, const SparseOperands& x, BFloat16* y, float* shares);
bool sparse_mma_backward(Cuda on, const SparseOperands& x, Write<BFloat16> dquery, Write<BFloat16> dlatents,
                         Index most_parts = kMostPairParts);
bool index_scores_mma(Cuda on, const SparseOperands& x, const BFloat16* weights, float* scores);
bool index_scores_mma_backward(Cuda on, const SparseOperands& x, const BFloat16* weights,
                               const float* dscores, Write<BFloat16> dquery, Write<BFloat16> dkey,
                               Write<BFloat16> dweights);
/// The scores [rows, S] of all pairs of the queries from `first` on that queries may see.
bool all_index_scores_mma(Cuda on, const SparseOperands& x, const IndexSizes& sizes, Index first, Index rows,
                          const BFloat16* weights, float* scores);

/// The gradients [B S, N] of keys from those of pairs: find(first, count, parts) queues what `count` queries
/// from `first` on add to them, [count, K, N], at most `most_parts` numbers at a time.
void add_pair_gradients(Cuda on, const KeysOfQueries& keys, Index width, Index most_parts,
                        const std::function<void(Index, Index, BFloat16*)>& find, Write<BFloat16> to);

}  // namespace tapeformer::kernels
