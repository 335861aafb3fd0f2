#pragma once

#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/nn/attention/cached_heads.h>
#include <tapeformer/nn/linear.h>

#include <optional>
#include <vector>

namespace tapeformer {

struct MultiHeadConfig {
  Index width = 0;               ///< C, of the queries' input
  Index heads = 1;               ///< H
  Index memory_width = 0;        ///< of the keys' and values' input; 0 for width
  Index value_memory_width = 0;  ///< of the values' input where it is another one; 0 for memory_width
  Index output_width = 0;        ///< O, of the output; 0 for width
  Index key_width = 0;           ///< d_k, of a head's queries and keys; 0 for output_width / heads
  Index value_width = 0;         ///< d_v, of a head's values; 0 for output_width / heads
  double dropout = 0;            ///< on the attention weights
  double output_dropout = 0;     ///< on the output
  bool bias = true;              ///< of the projections to queries, keys and values
  bool output_bias = true;
  bool packed = false;          ///< one matrix for queries, keys and values; wants inputs of one width
  bool sequence_first = false;  ///< inputs and output are [T, B, C]; masks and weights stay as they are
  bool rotary = false;          ///< turns queries and keys by their positions; for self-attention only
  RotaryConfig rotations = {};
};

/// Multi-head attention: self-attention when query and memory are the same, else cross-attention.
/// Math:    head_h = softmax(q_h k_h^T / sqrt(d_k)) v_h; y = output(concat_h head_h)
/// Shapes:  query [B, T, C], memory [B, S, memory_width] -> y [B, T, O]
/// Initial: each projection Xavier uniform, packed ones part by part; biases zero
/// Throws:  Error if sizes do not fit, or for rotary positions with another memory than the query; ShapeError
///          for inputs of another rank
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2
class MultiHeadAttention : public Attention {
 public:
  MultiHeadAttention(const MultiHeadConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  /// With keys and values made of different inputs.
  /// Shapes:  query [B, T, C], key [B, S, memory_width], value [B, S, value_memory_width] -> y [B, T, O]
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                    const AttentionContext& context) const;
  RotaryAngles angles(const Tensor& query, const AttentionContext& context) const override;
  CacheWidths cache_widths() const override {
    return {heads_.groups * heads_.key_width, heads_.groups * heads_.value_width};
  }
  void visit(ParameterVisitor& visitor) override;

 private:
  enum Part { kQuery, kKey, kValue };
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value,
                const AttentionContext& context) const;
  Tensor project(Part part, const Tensor& x) const;

  MultiHeadConfig config_;
  PackedHeads heads_;
  PooledVector<Index> parts_;   // rows of query, key and value in a packed projection
  std::vector<Linear> inputs_;  // query, key, value; or one for all
  Linear output_;
  Dropout dropout_;
  std::optional<Dropout> output_dropout_;
};

}  // namespace tapeformer
