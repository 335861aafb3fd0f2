#pragma once

#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

struct SingleHeadConfig {
  Index width = 0;         ///< C, of the queries' input
  Index memory_width = 0;  ///< of the keys' and values' input; 0 for width
  Index key_width = 0;     ///< D, of queries and keys; 0 for width
  Index value_width = 0;   ///< E, of values and output; 0 for key_width
  double scale = 0;        ///< of the scores; 0 for 1 / sqrt(D)
  double dropout = 0;      ///< on the attention weights
  bool causal = false;     ///< queries see no later keys, whatever the context says (section 3.2.3)
  bool bias = false;       ///< of the projections
};

/// Attention with one head and no output projection: self-attention when query and memory are the same, else
/// cross-attention.
/// Math:    y = dropout(softmax(scale query(x) key(m)^T)) value(m)
/// Shapes:  query x [B, T, C], memory m [B, S, memory width] -> y [B, T, E]
/// Initial: PyTorch's default for a linear layer
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1
class SingleHeadAttention : public Attention {
 public:
  SingleHeadAttention(const SingleHeadConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  CacheWidths cache_widths() const override { return {head_.key_width, head_.value_width}; }
  void visit(ParameterVisitor& visitor) override;

 private:
  PackedHeads head_;
  double scale_;
  bool causal_;
  Linear query_, key_, value_;
  Dropout dropout_;
};

}  // namespace tapeformer
