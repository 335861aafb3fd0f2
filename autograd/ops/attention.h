#pragma once

#include <tapeformer/autograd/ops/dropout.h>
#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

/// Who may attend to whom; in every boolean mask true means may attend. All of them apply together.
struct AttentionOptions {
  Tensor mask;          ///< bool, or floating and added to the scores; broadcasts to [B, H, T, S]
  Tensor key_mask;      ///< bool [B, S]: which keys and values are real
  Tensor query_mask;    ///< bool [B, T]: which queries are real
  bool causal = false;  ///< no query sees later keys; the last query stands at the last key
  double scale = 0;     ///< of the scores; 0 for 1 / sqrt(D)
  double dropout = 0;   ///< probability, on the weights
  DropoutKey dropout_key;
  Tensor* weights = nullptr;  ///< receives the weights [B, H, T, S] as they are before dropout
};

/// Scaled dot-product attention. A query that may attend to nothing gets zeros, and no gradient flows from
/// it. Keys, values and queries that key_mask or query_mask leave out may hold anything, NaN included: they
/// count as zero and get zero gradient. With `causal`, query t sees the keys s <= t + S - T.
/// Math:    y = dropout(softmax(scale * query key^T + mask)) value, head by head
/// Shapes:  query [B, T, H, D], key [B, S, H, D], value [B, S, H, E] -> y [B, T, H, E]
/// Saves:   query, key, value, the weights, the combined mask, and a bit a weight with dropout
/// Throws:  ShapeError if the shapes do not fit, DTypeError for a mask of the wrong type
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

}  // namespace tapeformer
