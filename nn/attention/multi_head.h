#pragma once

#include <tapeformer/nn/attention/attention.h>
#include <tapeformer/nn/dropout.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

struct MultiHeadConfig {
  Index width = 0;         ///< C, of the queries' input and of the output
  Index heads = 1;         ///< H
  Index memory_width = 0;  ///< of the keys' and values' input; 0 for width
  Index key_width = 0;     ///< d_k, of a head's queries and keys; 0 for width / heads
  Index value_width = 0;   ///< d_v, of a head's values; 0 for width / heads
  double dropout = 0;      ///< on the attention weights
  bool bias = true;
};

/// Multi-head attention: self-attention when query and memory are the same, else cross-attention.
/// Math:    head_h = softmax(q_h k_h^T / sqrt(d_k)) v_h; y = output(concat_h head_h)
/// Shapes:  query [B, T, C], memory [B, S, memory_width] -> y [B, T, C]
/// Throws:  Error if width is not divisible by heads and the head widths are left to it
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2
class MultiHeadAttention : public Attention {
 public:
  MultiHeadAttention(const MultiHeadConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  CacheWidths cache_widths() const override { return {heads_ * key_width_, heads_ * value_width_}; }
  void visit(ParameterVisitor& visitor) override;

 private:
  Index heads_, key_width_, value_width_;
  Linear query_, key_, value_, output_;
  Dropout dropout_;
};

}  // namespace tapeformer
