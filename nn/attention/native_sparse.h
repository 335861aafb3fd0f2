#pragma once

#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/block_compression.h>
#include <tapeformer/nn/attention/heads.h>

namespace tapeformer {

/// Native sparse attention: three attentions of the same queries, each to keys and values of its own, mixed
/// by gates. Tokens attend to all earlier ones through a key for each block of l tokens (compressed), to the
/// tokens of the n blocks of l' that the weights of the former find most important (chosen), and to the last
/// w tokens (window). The gradient of the choice is zero.
/// Math:    compressed: k~_i, v~_i = compression of tokens i d to i d + l - 1; token t sees those that end at
///          t or before; p = softmax(q k~^T / sqrt(D)), y_1 = p v~
///          chosen: importance of block j = sum over the group's heads, over the parts of d tokens in j, and
///          over the compressed blocks i with that part, of p_i; y_2 = softmax(q k^T / sqrt(D)) v over the
///          blocks of token 0, of t itself, and n - 2 others with the largest importance
///          window: y_3 = softmax(q k^T / sqrt(D)) v over t - w < s <= t
///          y = output(concat_h sum_c sigmoid(gate_c,h(x)) y_c,h)
///          Rotary positions rotate queries and keys of the second and third. A compressed key has no one
///          position, and equal words would be compressed to other keys at each angle; what tells its tokens
///          apart is their position in the block.
/// Shapes:  query, which is the memory, [B, T, C] -> y [B, T, O]
/// Initial: matrices Xavier uniform, biases zero; positions in a block normal with standard deviation 0.02
/// Throws:  Error for another memory, for any mask but the causal one, which more than one token must have;
///          ShapeError for inputs of another rank
/// Source:  Yuan et al. 2025, arXiv:2502.11089, section 3
class NativeSparseAttention : public Attention {
 public:
  NativeSparseAttention(const AttentionConfig& config, Generator& random);

  /// The weights are those of the chosen keys and the window, and of compressed keys in equal shares for
  /// their tokens, times the gates.
  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  RotaryAngles angles(const Tensor& query, const AttentionContext& context) const override {
    return rotary_ ? rotary_->angles(query, context) : RotaryAngles();
  }
  CacheWidths cache_widths() const override {
    return {3 * heads_.groups * heads_.key_width, 3 * heads_.groups * heads_.value_width};
  }
  void visit(ParameterVisitor& visitor) override;

  // For the table of kinds; see AttentionKind.
  /// See AttentionKind::complete.
  static void complete(AttentionConfig& config);
  /// The fields that hold l, d, l', n and w.
  static std::vector<OwnField> own_fields();
  /// The choice computes the scores of compressed keys again, for pieces of queries, and has no backward
  /// pass. The cache has 3 G (D + E) values for each token; compressed keys are computed from them again.
  static void add_cost(const AttentionConfig& config, CostSum& sum);

 private:
  struct Sizes {
    Index span, stride, block, top_k, window;  // l, d, l', n, w
  };
  static Sizes sizes_of(const AttentionConfig& config);
  Tensor per_part(const Tensor& x) const;
  Tensor importance(const Tensor& query, const Tensor& key, const AttentionMasks& masks, Index first,
                    Index blocks) const;
  Tensor gated(const Tensor& y, const Tensor& gates, Index branch) const;

  AttentionConfig config_;
  Sizes sizes_;
  PackedHeads heads_;
  std::optional<Rotary> rotary_;
  Linear query_, key_value_, gate_, output_;
  BlockCompression key_compression_, value_compression_;
};

}  // namespace tapeformer
