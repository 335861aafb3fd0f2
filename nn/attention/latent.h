#pragma once

#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/attention/indexer.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/nn/norm.h>

#include <functional>

namespace tapeformer {

/// Multi-head latent attention: keys and values of all heads come from one latent per token, and the cache
/// holds only that and one rotary key that the heads share. No projection has a bias. Without
/// shared_key_rotation R is the identity.
/// Math:    c = norm(W_DKV x'), k_h = [W_UK,h c; R W_KR x'], v_h = W_UV,h c, with x' the memory;
///          c' = norm(W_DQ x), or x; q_h = [W_UQ,h c'; R W_QR,h c'], R rotating by positions;
///          y = W_O concat_h softmax(q_h k_h^T / sqrt(d_h + d_R)) v_h, or with score_scale for the divisor
///          absorbed: q_h k_h^T = [W_UK,h^T W_UQ,h c'; R W_QR,h c'] [c; R W_KR x']^T, and the weights sum c
///          before W_UV,h is applied;
///          with an index_top_k K, the softmax is over the K keys that an Indexer chooses for the query, in
///          the absorbed form
/// Shapes:  query [B, T, C], memory [B, S, memory_width] -> y [B, T, O]; only a layer with `cross`, which has
///          no rotary part, takes another memory than the query
/// Initial: Xavier uniform
/// Throws:  Error if sizes do not fit, or for another memory with rotary positions; ShapeError for inputs of
///          another rank
/// Source:  DeepSeek-AI 2024, arXiv:2405.04434, section 2.1 and equations 37 to 47; index_top_k: DeepSeek-AI
///          2025, arXiv:2512.02556, section 2.1
class LatentAttention : public Attention {
 public:
  LatentAttention(const AttentionConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  RotaryAngles angles(const Tensor& query, const AttentionContext& context) const override {
    return rotary_ ? rotary_->angles(query, context) : RotaryAngles();
  }
  CacheWidths cache_widths() const override {
    return {config_.latent_width + config_.rotary_width, indexer_ ? config_.index_width : 0};
  }
  void visit(ParameterVisitor& visitor) override;

  // For the table of kinds; see AttentionKind.
  /// See AttentionKind::complete.
  static void complete(AttentionConfig& config);
  /// Naive and absorbed.
  static std::vector<AttentionForm> forms();
  /// Adds the cost of the naive or the absorbed form, and of an indexer without its loss. The cache has
  /// d_c + d_R values for each token, and an indexer's key, against 2 H D of multi-head attention.
  /// Source:  DeepSeek-AI 2024, arXiv:2405.04434, section 2.1.4, table 1
  static void add_cost(const AttentionConfig& config, CostSum& sum);

 private:
  Tensor turned(const Tensor& x, Index heads, const RotaryAngles& angles) const;
  /// [B, T, H, d_c + d_R] -> the weighted sums of the latents, [B, T, H, d_c]
  using AbsorbedAttention = std::function<Tensor(const Tensor& query)>;
  Tensor latents(const Tensor& memory, const RotaryAngles& angles) const;
  Tensor naive(const Tensor& input, const Tensor& rotary, const Tensor& latents,
               const AttentionOptions& options) const;
  Tensor absorbed(const Tensor& input, const Tensor& rotary, const AbsorbedAttention& attend) const;

  AttentionConfig config_;
  std::optional<Linear> query_down_;                 // W_DQ
  Linear query_up_;                                  // W_UQ
  Linear key_value_down_;                            // W_DKV
  Linear key_up_, value_up_;                         // W_UK, W_UV
  std::optional<Linear> query_rotary_, key_rotary_;  // W_QR, W_KR
  std::optional<Rotary> rotary_;                     // of rotary queries and keys, if there are any
  std::optional<RmsNorm> query_norm_, key_value_norm_;
  Linear output_;  // W_O
  Dropout dropout_;
  std::optional<Indexer> indexer_;
};

}  // namespace tapeformer
