#pragma once

#include <tapeformer/nn/attention/cached_heads.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

struct AdditiveConfig {
  Index width = 0;         ///< C, of the queries' input
  Index heads = 1;         ///< H
  Index memory_width = 0;  ///< of the keys' and values' input; 0 for width
  Index output_width = 0;  ///< O, of the output; 0 for width
  Index hidden_width = 0;  ///< D, of a head's hidden layer; 0 for output_width / heads
  Index value_width = 0;   ///< E, of a head's values; 0 for output_width / heads
  double dropout = 0;      ///< on the attention weights
  bool bias = true;        ///< of queries, values and output; beside the queries' one the keys need none
};

/// Additive attention, head by head, in place of scaled dot products: self-attention when query and memory
/// are the same, else cross-attention. What the first step of the paper's recurrent decoder was, any layer of
/// a transformer may be.
/// Math:    score_h(t, s) = v_h . tanh(W_h query_t + U_h memory_s + b_h), head_h = softmax(score_h) value_h;
///          y = output(concat_h head_h); W, b: query, U: key, v: score
/// Shapes:  query [B, T, C], memory [B, S, memory_width] -> y [B, T, O]
/// Initial: projections Xavier uniform, v as Xavier's row of D inputs and one output, biases zero
/// Throws:  Error if output_width is not divisible by heads and the head widths are left to it
/// Source:  Bahdanau, Cho and Bengio 2015, arXiv:1409.0473, section 3.1 and appendix A.1.2; the heads are
///          those of Vaswani et al. 2017, arXiv:1706.03762
class AdditiveAttention : public Attention {
 public:
  AdditiveAttention(const AdditiveConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  CacheWidths cache_widths() const override {
    return {heads_.heads * heads_.key_width, heads_.heads * heads_.value_width};
  }
  void visit(ParameterVisitor& visitor) override;

 private:
  PackedHeads heads_;
  Linear query_, key_, value_, output_;
  Parameter score_;  // [H, D]
  Dropout dropout_;
};

}  // namespace tapeformer
