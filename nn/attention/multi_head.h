#pragma once

#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/head_projections.h>
#include <tapeformer/nn/dropout.h>

namespace tapeformer {

/// Multi-head attention; grouped-query with G < H and multi-query with G = 1 heads of keys and values, each
/// shared by H / G neighbouring query heads. Self-attention if query and memory are the same tensor, else
/// cross-attention. Its pieces (pieces/pieces.h) change the heads before the scores, the scores, and the
/// heads' outputs.
/// Math:    g = floor(h G / H); head_h = softmax(q_h k_g^T / sqrt(D)) v_g; y = output(concat_h head_h). With
///          shared_keys, k_g and v_g are those of the context
/// Shapes:  query [B, T, C], memory [B, S, memory_width] -> y [B, T, O]
/// Initial: as HeadProjections; output Xavier uniform
/// Throws:  Error if sizes do not fit, or for a piece of self-attention with another memory than the query;
///          ShapeError for inputs of another rank
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2; Ainslie et al. 2023, arXiv:2305.13245;
///          Shazeer 2019, arXiv:1911.02150; shared_keys: Brandon et al. 2024, arXiv:2405.12981
class MultiHeadAttention : public Attention {
 public:
  MultiHeadAttention(const AttentionConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override {
    return (*this)(query, memory, memory, context);
  }
  /// As above, with keys and values made from different inputs.
  /// Shapes:  query [B, T, C], key [B, S, memory_width], value [B, S, value_memory_width] -> y [B, T, O]
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                    const AttentionContext& context) const;
  RotaryAngles angles(const Tensor& query, const AttentionContext& context) const override;
  CacheWidths cache_widths() const override {
    if (config_.shared_keys) return {};
    return {config_.key_heads() * config_.key_width, config_.key_heads() * config_.value_width};
  }
  void visit(ParameterVisitor& visitor) override;

  // For the table of kinds; see AttentionKind.
  /// As many heads of keys as of queries for mha, one for mqa; for gqa `groups`, by default the greatest
  /// divisor of heads up to heads / 2.
  static void complete(AttentionConfig& config);
  /// With N = B T rows of queries, M = B S of keys, C' the memory's width, O the output's, and P the pairs of
  /// a query and a key that it may attend to, in all batch rows and heads, cached keys included:
  ///   parameters   C H D + C' G (D + E) + H E O; biases H D + G (D + E) + O
  ///   forward      2 (N C H D + M C' G (D + E) + N H E O) + 2 P (D + E)
  ///   backward     twice the projections + 2 P (3 D + 2 E): scores once more, gradients of weights, values,
  ///                queries and keys
  ///   activations  N (C + H D + H E + H) + M G (D + E) values: input, projections, output of the heads, and
  ///                the logarithm of a sum for each of their rows; M C' for a memory; causal: 8 bytes per row
  ///                for the range that it sees
  ///   cache        G (D + E) values
  /// and the parts of the pieces. shared_keys: no terms of C', no cache
  static void add_cost(const AttentionConfig& config, CostSum& sum);

 private:
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value,
                const AttentionContext& context) const;
  Tensor weighted_values(CallHeads& heads) const;

  AttentionConfig config_;
  HeadProjections projections_;
  Linear output_;
  Dropout dropout_;
  std::vector<MadePiece> pieces_;
  std::optional<Dropout> output_dropout_;
};

}  // namespace tapeformer
