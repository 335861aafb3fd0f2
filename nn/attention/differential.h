#pragma once

#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/cached_heads.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/nn/rms_norm.h>

namespace tapeformer {

/// Differential attention: each head subtracts one softmax map from another, so that what both give to
/// irrelevant tokens cancels. Its own field `window` limits how many keys a query sees up to its position.
/// Math:    head_h = (1 - l0) norm((softmax(q1 k1^T / sqrt(D)) - l softmax(q2 k2^T / sqrt(D))) v_h),
///          l = exp(lq1 . lk1) - exp(lq2 . lk2) + l0, l0 = 0.8; y = output(concat_h head_h)
/// Shapes:  query [B, T, C], memory [B, S, memory_width] -> y [B, T, O]
/// Initial: projections Xavier uniform, lambda of standard deviation 0.1
/// Source:  Ye et al. 2024, arXiv:2410.05258, section 2.1
class DifferentialAttention : public Attention {
 public:
  DifferentialAttention(const AttentionConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  CacheWidths cache_widths() const override {
    return {heads_.heads * heads_.key_width, heads_.heads * heads_.value_width};
  }
  void visit(ParameterVisitor& visitor) override;

  static AttentionKind kind();

 private:
  AttentionConfig config_;
  PackedHeads heads_;  // with both keys of a head side by side
  Linear query_, key_, value_, output_;
  Parameter lambda_;  // [4, D]: lq1, lk1, lq2, lk2
  RmsNorm norm_;
  Dropout dropout_;
};

}  // namespace tapeformer
