#pragma once

#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/nn/norm.h>
#include <tapeformer/nn/short_convolution.h>

namespace tapeformer {

/// Linear attention with a state, of four kinds: gated linear attention (gla), DeltaNet (deltanet), Gated
/// DeltaNet (gated_deltanet) and Kimi delta attention (kda). The time for a token and the memory of the cache
/// do not grow with the number of tokens before. Decays and convolutions carry the order of tokens, so there
/// are no rotary positions.
/// Math:    q, k, v = silu(convolution(W x)), or W x (gla or no taps); q, k of length 1, but not gla's, and G
///          heads of them for the H of values, each for H / G in a row; beta = beta_scale sigmoid(W_b x), gla
///          has none; log decay
///            gla:            -softplus(W_2 W_1 x + offset) / 16, by channel
///            gated_deltanet: -exp(rate) softplus(W_2 x + offset), one per head
///            kda:            -exp(rate) softplus(W_2 W_1 x + offset), by channel, rate by head
///          y = W_O concat_h gate * rms_norm(linear_attention(q, k, v)_h), with the gate silu(W_g x) of gla
///          and gated_deltanet, sigmoid(W_g2 W_g1 x) of kda through a head's width, and 1 of deltanet. No
///          projection has a bias. (gla's log sigmoid is -softplus of the negated argument.)
/// Shapes:  query, which is the memory, [B, T, C] -> y [B, T, O]
/// Initial: matrices Xavier uniform; rates log(1) to log(16), offsets whose softplus is 0.001 to 0.1, both
///          spread evenly over the heads (the second by its logarithm); gla's offsets -2
/// Throws:  Error for another memory, for any mask but the causal one, which more than one token must have,
///          for weights, and for a cache that is not a StateCache; ShapeError for inputs of another rank
/// Source:  Yang et al. 2024, arXiv:2312.06635, section 4.4; arXiv:2406.06484, section 3.4; arXiv:2412.06464,
///          section 3.4; Kimi Team 2025, arXiv:2510.26692, section 4
class LinearAttention : public Attention {
 public:
  LinearAttention(const AttentionConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  CacheWidths cache_widths() const override {
    return {0, 0, config_.heads * config_.key_width * config_.value_width};
  }
  void visit(ParameterVisitor& visitor) override;

  // For the table of kinds; see AttentionKind.
  /// See AttentionKind::complete.
  static void complete(AttentionConfig& config);
  /// K, the rank of W_1 and the factor of beta, where the kind has them, sizes apart from those of a model's
  /// other attention, and the epsilon of the norm.
  static std::vector<OwnField> own_fields(const std::string& kind_name);
  /// Activations include a state for every D tokens, D rounded up to a multiple of 64. The cache has H D E
  /// values in the wide type and K - 1 tokens of the convolution's input for each row, and nothing per token.
  static void add_cost(const AttentionConfig& config, CostSum& sum);

 private:
  struct Kind {
    bool deltas, has_rate, by_channel, low_rank_gate, gates;
  };
  static Kind kind_of(const std::string& name);
  void check_call(const Tensor& query, const Tensor& memory, const AttentionContext& context) const;
  Tensor log_decay(const Tensor& x) const;
  Tensor gated(const Tensor& heads, const Tensor& x) const;

  AttentionConfig config_;
  Kind kind_;
  Linear query_key_value_;
  std::optional<ShortConvolution> convolution_;
  std::optional<Linear> beta_, decay_down_, decay_up_;
  Parameter decay_offset_, decay_rate_;  // [H D] or [H], and [H]
  std::optional<Linear> gate_down_, gate_;
  RmsNorm norm_;
  Linear output_;
};

}  // namespace tapeformer
