#pragma once

#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/nn/norm.h>

namespace tapeformer {

/// Differential attention: the difference of two attentions to the same values, which cancels their common
/// noise. Each head's queries and keys of width D are two of width D / 2; rotary positions rotate each of
/// them, except the last component of an odd width.
/// Math:    y_h = softmax(q1_h k1_g^T / sqrt(D / 2)) v_g - lambda softmax(q2_h k2_g^T / sqrt(D / 2)) v_g,
///          g = floor(h G / H); lambda = exp(a1 . b1) - exp(a2 . b2) + lambda_initial, of all heads;
///          y = output(concat_h (1 - lambda_initial) rms_norm(y_h)), with one gain for all heads,
///          or with none
/// Shapes:  query [B, T, C], memory [B, S, memory_width] -> y [B, T, O]
/// Initial: Xavier uniform, biases zero; a and b normal with a standard deviation of 0.1
/// Throws:  as MultiHeadAttention
/// Source:  Ye et al. 2024, arXiv:2410.05258
class DifferentialAttention : public Attention {
 public:
  DifferentialAttention(const AttentionConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  RotaryAngles angles(const Tensor& query, const AttentionContext& context) const override {
    return rotary_ ? rotary_->angles(query, context) : RotaryAngles();
  }
  CacheWidths cache_widths() const override {
    return {heads_.groups * heads_.key_width, heads_.groups * heads_.value_width};
  }
  void visit(ParameterVisitor& visitor) override;

  // For the table of kinds; see AttentionKind.
  /// See AttentionKind::complete.
  static void complete(AttentionConfig& config);
  /// As MultiHeadAttention's with 2 H heads of queries, half of whose width is zeros: 4 P (D + E) for
  /// products of queries, keys, weights and values forward. Activations also have the inputs of the
  /// difference and of the norms.
  static void add_cost(const AttentionConfig& config, CostSum& sum);

 private:
  Tensor rotated(Tensor x, const RotaryAngles& angles) const;
  Tensor lambda() const;

  AttentionConfig config_;
  PackedHeads heads_;
  std::optional<Rotary> rotary_;  // of halves of heads
  Linear query_, key_value_, output_;
  Dropout dropout_;
  Parameter lambda_vectors_;  // [2 D]: a1, b1, a2 and b2
  Norm head_norm_;            // of each head's difference
};

}  // namespace tapeformer
