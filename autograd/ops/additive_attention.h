#pragma once

#include <tapeformer/autograd/ops/attention.h>

namespace tapeformer {

/// Attention with scores from a small network with one hidden layer. Everything else, including all options
/// except the scale and blocks, is as in scaled_dot_product_attention. The hidden layer [T, S, D] is never
/// stored.
/// Math:    y = dropout(softmax(score + mask)) value, score(t, s) = weight_h . tanh(query_t + key_s)
/// Grad:    with g = dscore, u = tanh(query_t + key_s): dquery_t = sum_s g weight_h (1 - u^2), dkey_s the
///          same summed over t, dweight_h = sum_t,s g u
/// Shapes:  query [B, T, H, D], key [B, S, G, D], value [B, S, G, E], weight [H, D] -> y [B, T, H, E];
///          H a multiple of G
/// Saves:   query, key, value, weight, y, and the logarithm of the sum of exponentials of every row of scores
/// Throws:  ShapeError if the shapes do not fit, or a scale or a size of blocks is given; DTypeError for a
///          mask of the wrong type
/// Source:  Bahdanau, Cho and Bengio 2015, arXiv:1409.0473, appendix A.1.2; the projections W_a s and U_a h
///          are the caller's
Tensor additive_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& weight,
                          const AttentionOptions& options = {});

/// Additive attention in plain operations, which store the hidden layer [B, H, T, S, D]: the oracle, the
/// source of the weights, and the composed fallback for higher derivatives.
Tensor composed_additive_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const Tensor& weight, const AttentionOptions& options = {});

}  // namespace tapeformer
