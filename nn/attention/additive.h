#pragma once

#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

/// Additive attention, head by head, in place of scaled dot products: self-attention when query and memory
/// are the same, else cross-attention. The paper has one such layer in a recurrent decoder; here any layer of
/// a transformer may be one.
/// Math:    score_h(t, s) = v_h . tanh(W_h query_t + U_h memory_s + b_h), head_h = softmax(score_h) value_h;
///          y = output(concat_h head_h); W, b: query, U: key, v: score
/// Shapes:  query [B, T, C], memory [B, S, memory_width] -> y [B, T, O]
/// Initial: projections Xavier uniform, v as Xavier's row of D inputs and one output, biases zero
/// Throws:  Error if output_width is not divisible by heads and the head widths are left to it
/// Source:  Bahdanau, Cho and Bengio 2015, arXiv:1409.0473, section 3.1 and appendix A.1.2; the heads are
///          those of Vaswani et al. 2017, arXiv:1706.03762
class AdditiveAttention : public Attention {
 public:
  AdditiveAttention(const AttentionConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  CacheWidths cache_widths() const override {
    return {heads_.heads * heads_.key_width, heads_.heads * heads_.value_width};
  }
  void visit(ParameterVisitor& visitor) override;

  /// As MultiHeadAttention::add_cost() with G = H, but
  ///   parameters   H D more for the scores, and no bias for keys
  ///   backward     2 P (4 D + 2 E) in place of 2 P (3 D + 2 E), since the score weights get a gradient too
  static void add_cost(const AttentionConfig& config, CostSum& sum);

 private:
  AttentionConfig config_;
  PackedHeads heads_;
  Linear query_, key_, value_, output_;
  Parameter score_;  // [H, D]
  Dropout dropout_;
};

}  // namespace tapeformer
