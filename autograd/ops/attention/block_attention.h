#pragma once

#include <tapeformer/autograd/ops/attention.h>

namespace tapeformer {

/// Mixture of block attention: attention in which each query reads only a few blocks of the keys. Keys are
/// cut into blocks from position 0 on. A query has the block of its own position, as far as the masks show
/// it, and the options' block_top_k - 1 others with the largest products of query and mean of the block's
/// keys (0 for those that key_mask hides), or with the largest block_scores for its group of heads, among
/// whole blocks from the first to the last key that the masks show: with a causal mask, earlier ones. The
/// choice gets no gradient. scaled_dot_product_attention() calls this if there is a block_size.
/// Math:    y = softmax over the chosen keys of (scale * query key^T) value, computed block by block for the
///          queries that chose it, and added up by their shares of the row's sum of exponentials
/// Grad:    that of attention to the chosen keys
/// Shapes:  query [B, T, H, D], key [B, S, G, D], value [B, S, G, E] -> y [B, T, H, E]; H a multiple of G
/// Saves:   query, key and value by head, y, the logarithm of each row's sum of exponentials, and the parts:
///          5 integers for each query and block of its choice, and one for each block
/// Throws:  Error for a mask of pairs, packed sequences, a change of the scores or weights, or dropout
/// Source:  Lu et al. 2025, arXiv:2502.13189
Tensor block_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                       const AttentionOptions& options);

}  // namespace tapeformer
