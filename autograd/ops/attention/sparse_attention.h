#pragma once

#include <tapeformer/autograd/ops/attention.h>

namespace tapeformer {

/// The factors of the scores of an indexer.
struct IndexHeads {
  Tensor query;    ///< [B, T, H, D]
  Tensor key;      ///< [B, S, D]
  Tensor weights;  ///< [B, T, H]: of a query's heads
};

/// The keys that each query attends to: those with the largest scores among the keys that the masks show, and
/// of equal ones the first. Not recorded.
/// Math:    I[t, s] = sum_h weights[t, h] relu(query[t, h] . key[s] / sqrt(D)) / sqrt(H)
/// Shapes:  H, D, S as in IndexHeads -> i32 [B, T, min(top_k, S)]: rows among the B S keys, ascending; places
///          that are left hold B S
/// Throws:  ShapeError if the shapes do not fit, or masks do not, as in attention; Error for a mask of pairs
/// Source:  DeepSeek-AI 2025, arXiv:2512.02556, section 2.1
Tensor choose_keys(const IndexHeads& index, Index top_k, const AttentionMasks& masks = {});

/// The scores of chosen keys, in the wide type.
/// Math:    as in choose_keys(); -1e30 in places that are left
/// Grad:    with z = query . key and c = 1 / sqrt(D H): dweights = c sum_s dI relu(z), dz = c weights dI
///          where z > 0, dquery = dz key, dkey = dz^T query
/// Shapes:  chosen i32 [B, T, K] of choose_keys() -> [B, T, K]
/// Saves:   its inputs
/// Throws:  ShapeError if the shapes do not fit or, on a CPU, if chosen is not as choose_keys() gives it
Tensor index_scores(const IndexHeads& index, const Tensor& chosen);

/// The options of attention to chosen keys.
struct SparseOptions {
  Index value_width = 0;      ///< E: the first E components of a latent are its value
  double scale = 1;           ///< of the scores
  Tensor* shares = nullptr;   ///< receives [B, T, K], the mean of the weights over heads; never recorded
  Tensor* weights = nullptr;  ///< receives the weights [B, H, T, S], for inspection
};

/// Attention of each query to its own keys, the same for all heads. Keys are latents, whose first components
/// are the values: absorbed latent attention. Rows of a query's latents are gathered once for all heads.
/// Math:    y = softmax over the chosen keys of (scale * query latents^T) latents[:E]
/// Grad:    that of attention to the chosen keys; the choice has none
/// Shapes:  query [B, T, H, N], latents [B, S, N], chosen i32 [B, T, K] -> y [B, T, H, E]
/// Saves:   its inputs
/// Throws:  ShapeError if the shapes do not fit or, on a CPU, if chosen is not as choose_keys() gives it
/// Source:  DeepSeek-AI 2025, arXiv:2512.02556, section 2.1
Tensor sparse_attention(const Tensor& query, const Tensor& latents, const Tensor& chosen,
                        const SparseOptions& options);

}  // namespace tapeformer
