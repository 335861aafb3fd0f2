#pragma once

#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/nn/attention/cached_heads.h>
#include <tapeformer/nn/linear.h>

#include <optional>

namespace tapeformer {

struct GroupedQueryConfig {
  Index width = 0;   ///< C, of the queries' input
  Index heads = 1;   ///< H, of the queries
  Index groups = 1;  ///< G, heads of keys and values; 1 is multi-query attention, H multi-head attention
  Index memory_width = 0;  ///< of the memory, in cross-attention; 0 for width
  Index output_width = 0;  ///< O, of the output; 0 for width
  Index key_width = 0;     ///< D, of a head's queries and keys; 0 for output_width / heads
  Index value_width = 0;   ///< E, of a head's values; 0 for output_width / heads
  double dropout = 0;      ///< on the attention weights
  bool bias = true;
  bool cross = false;   ///< reads a memory, not itself: other parameters, and no rotary positions
  bool rotary = false;  ///< turns queries and keys by their positions
  RotaryConfig rotations = {};
};

/// Grouped-query attention: H / G neighbouring query heads share one head of keys and values, which makes the
/// cache H / G times smaller.
/// Math:    g = floor(h G / H); head_h = softmax(R q_h (R k_g)^T / sqrt(D)) v_g; y = output(concat_h head_h),
///          R turning by positions, if told to
/// Shapes:  query [B, T, C], memory the same tensor, or with cross [B, S, memory_width] -> y [B, T, O]
/// Initial: Xavier uniform, projections to queries, keys and values each on its own; biases zero
/// Throws:  Error if heads, groups and widths do not fit
/// Source:  Ainslie et al. 2023, arXiv:2305.13245; with one group Shazeer 2019, arXiv:1911.02150
class GroupedQueryAttention : public Attention {
 public:
  GroupedQueryAttention(const GroupedQueryConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  RotaryAngles angles(const Tensor& query, const AttentionContext& context) const override;
  CacheWidths cache_widths() const override {
    return {heads_.groups * heads_.key_width, heads_.groups * heads_.value_width};
  }
  void visit(ParameterVisitor& visitor) override;

 private:
  GroupedQueryConfig config_;
  PackedHeads heads_;
  Linear input_;  // to queries, keys and values side by side; in cross-attention to queries
  std::optional<Linear> key_value_;  // of cross-attention
  Linear output_;
  Dropout dropout_;
};

}  // namespace tapeformer
