#pragma once

#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/attention/caches/cached_heads.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/head_norms.h>
#include <tapeformer/nn/attention/head_output.h>
#include <tapeformer/nn/attention/score_modifiers.h>
#include <tapeformer/nn/linear.h>

#include <optional>
#include <vector>

namespace tapeformer {

/// Multi-head attention; grouped-query with G < H and multi-query with G = 1 heads of keys and values, each
/// shared by H / G neighbouring query heads. Self-attention if query and memory are the same tensor, else
/// cross-attention.
/// Math:    g = floor(h G / H); head_h = softmax(R q_h (R k_g)^T / sqrt(D)) v_g; y = output(concat_h head_h),
///          with R the rotary embedding, if there is one. With qk_norm, R turns normed queries and keys, see
///          HeadNorms. With value_residual, v_g counts as m_0 v_g + m_1 first_values_g, m learned and
///          (1/2, 1/2) at first. With exclusive and output_gate, head_h
///          is what without_own_value() and HeadGates make of it. With shared_keys, k_g and v_g are those of
///          the context
/// Shapes:  query [B, T, C], memory [B, S, memory_width] -> y [B, T, O]
/// Initial: each projection Xavier uniform, packed ones part by part; biases zero
/// Throws:  Error if sizes do not fit, or for rotary positions with another memory than the query; ShapeError
///          for inputs of another rank
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2; Ainslie et al. 2023, arXiv:2305.13245;
///          Shazeer 2019, arXiv:1911.02150; value_residual: Zhou et al. 2024, arXiv:2410.17897,
///          section 4.2; shared_keys: Brandon et al. 2024, arXiv:2405.12981
class MultiHeadAttention : public Attention {
 public:
  MultiHeadAttention(const AttentionConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  /// With keys and values made of different inputs.
  /// Shapes:  query [B, T, C], key [B, S, memory_width], value [B, S, value_memory_width] -> y [B, T, O]
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                    const AttentionContext& context) const;
  RotaryAngles angles(const Tensor& query, const AttentionContext& context) const override;
  CacheWidths cache_widths() const override {
    if (config_.shared_keys) return {};
    return {heads_.groups * heads_.key_width, heads_.groups * heads_.value_width};
  }
  void visit(ParameterVisitor& visitor) override;

  // For the table of kinds; see AttentionKind.
  /// See AttentionKind::complete.
  static void complete_multi_head(AttentionConfig& config);
  /// See AttentionKind::complete.
  static void complete_grouped_query(AttentionConfig& config);
  /// See AttentionKind::complete.
  static void complete_multi_query(AttentionConfig& config);
  /// With N = B T rows of queries, M = B S of keys, C' the memory's width, O the output's, and P the pairs of
  /// a query and a key that it may attend to, in all batch rows and heads, cached keys included:
  ///   parameters   C H D + C' G (D + E) + H E O; biases H D + G (D + E) + O
  ///   forward      2 (N C H D + M C' G (D + E) + N H E O) + 2 P (D + E)
  ///   backward     twice the projections + 2 P (3 D + 2 E): scores once more, gradients of weights, values,
  ///                queries and keys
  ///   activations  N (C + H D + H E + H) + M G (D + E) numbers: input, projections, output of the heads,
  ///                and the logarithm of a sum for each of their rows; M C' for a memory; rotary: T D of
  ///                angles; causal: 8 bytes a row for the range that it sees; qk_norm,
  ///                value_residual, exclusive and output_gate: what they are computed from
  ///   cache        G (D + E) numbers
  /// output_gate: C H or C H E parameters, a projection of N rows more. shared_keys: no terms of C', no cache
  static AttentionCost cost(const AttentionConfig& config, const AttentionCall& call);

 private:
  enum Part { kQuery, kKey, kValue };
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value,
                const AttentionContext& context) const;
  void check_context(const AttentionContext& context, bool is_self) const;
  Tensor attend_packed(const Tensor& x, const AttentionContext& context, Tensor& own_values) const;
  Tensor attend_apart(const Tensor& query, const Tensor& key, const Tensor& value, bool is_self,
                      const AttentionContext& context, Tensor& own_values) const;
  Tensor attend_heads(const Tensor& query_bthd, const KeyValueHeads& held, AttentionOptions& options) const;
  Tensor attend_shared(const Tensor& query, const AttentionContext& context) const;
  Tensor project(Part part, const Tensor& x) const;
  TensorList key_and_value(const Tensor& key, const Tensor& value) const;
  AttentionOptions options_of(const AttentionContext& context) const;

  AttentionConfig config_;
  PackedHeads heads_;
  PooledVector<Index> part_widths_;  // of the projected query, key and value
  std::vector<Linear> projections_;  // one for all parts; or the query's, and one for key and value; or three
  Linear output_;
  Dropout dropout_;
  std::optional<Dropout> output_dropout_;
  HeadNorms norms_;
  ScoreModifiers modifiers_;
  HeadGates gates_;
  Parameter value_residual_;  // [2], or undefined
};

}  // namespace tapeformer
