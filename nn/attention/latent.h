#pragma once

#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/nn/attention/cached_heads.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/nn/rms_norm.h>

#include <optional>

namespace tapeformer {

/// Two ways to compute the same: keys and values head by head, or attention on the latents themselves, which
/// reads far less when many keys meet few queries.
enum class LatentForm { automatic, naive, absorbed };

struct LatentConfig {
  Index width = 0;         ///< C, of the queries' input
  Index heads = 1;         ///< H
  Index memory_width = 0;  ///< of the keys' and values' input; 0 for width
  Index output_width = 0;  ///< O, of the output; 0 for width
  /// d_h, of a head's queries and keys without their rotary part; 0 for output_width / heads
  Index key_width = 0;
  Index value_width = 0;  ///< of a head's values; 0 for output_width / heads
  Index latent_width =
      0;  ///< d_c, of the latents that keys and values come from; 0 for width / 2, at least 1
  Index query_latent_width = 0;  ///< of the latents that queries come from; 0 for queries straight from x
  Index rotary_width = 0;        ///< d_R, of the rotary part of queries and keys; 0 for none
  bool norm = true;              ///< RMS norms on the latents
  double dropout = 0;            ///< on the attention weights
  LatentForm form = LatentForm::automatic;  ///< automatic: absorbed once a cache holds something, else naive
  RotaryConfig rotations = {};

  /// With the defaults in place of zeros where 0 is no size.
  /// Throws: Error naming the sizes that do not fit
  LatentConfig resolved() const;
};

/// W_UK^T W_UQ and W_O W_UV, multiplied out. Fewer products in the absorbed form, and larger ones: a gain
/// where latents are narrow, d_c (inputs of W_UQ) < d_h (d_c + inputs of W_UQ).
struct LatentProducts {
  Tensor query, output;  ///< [H d_c, inputs of W_UQ] and [O, H d_c]
};

/// Multi-head latent attention: keys and values of all heads come from one latent a token, and the cache
/// holds only that and one rotary key that the heads share. No projection has a bias.
/// Math:    c = norm(W_DKV x'), k_h = [W_UK,h c; R W_KR x'], v_h = W_UV,h c, x' being the memory;
///          c' = norm(W_DQ x), or x; q_h = [W_UQ,h c'; R W_QR,h c'], R turning by positions;
///          y = W_O concat_h softmax(q_h k_h^T / sqrt(d_h + d_R)) v_h
///          absorbed: q_h k_h^T = [W_UK,h^T W_UQ,h c'; R W_QR,h c'] [c; R W_KR x']^T, and the weights sum c
///          before W_UV,h is applied
/// Shapes:  query [B, T, C], memory [B, S, memory_width] -> y [B, T, O]; another memory than the query needs
///          rotary_width 0
/// Initial: Xavier uniform
/// Throws:  Error if sizes do not fit, or for another memory with rotary positions; ShapeError for inputs of
///          another rank
/// Source:  DeepSeek-AI 2024, arXiv:2405.04434, section 2.1 and equations 37 to 47
class LatentAttention : public Attention {
 public:
  LatentAttention(const LatentConfig& config, Generator& random);

  Tensor operator()(const Tensor& query, const Tensor& memory,
                    const AttentionContext& context = {}) const override;
  RotaryAngles angles(const Tensor& query, const AttentionContext& context) const override;
  CacheWidths cache_widths() const override { return {latent_width_ + config_.rotary_width, 0}; }
  void visit(ParameterVisitor& visitor) override;

  /// Of the weights as they are now; they are the caller's, to ask for again once the weights have changed.
  LatentProducts products() const;
  /// The same as without products, which the absorbed form uses where no tape records.
  Tensor operator()(const Tensor& query, const Tensor& memory, const AttentionContext& context,
                    const LatentProducts& products) const;

 private:
  Tensor attend(const Tensor& query, const Tensor& memory, const AttentionContext& context,
                const LatentProducts& products) const;
  Tensor latents(const Tensor& memory, const RotaryAngles& angles) const;
  Tensor naive(const Tensor& input, const Tensor& rotary, const Tensor& latents,
               const AttentionOptions& options) const;
  Tensor absorbed(const Tensor& input, const Tensor& rotary, const Tensor& latents,
                  const LatentProducts& products, const AttentionOptions& options) const;

  LatentConfig config_;
  Index heads_, key_width_, value_width_, latent_width_;
  std::optional<Linear> query_down_;                 // W_DQ
  Linear query_up_;                                  // W_UQ
  Linear key_value_down_;                            // W_DKV
  Linear key_up_, value_up_;                         // W_UK, W_UV
  std::optional<Linear> query_rotary_, key_rotary_;  // W_QR, W_KR
  std::optional<RmsNorm> query_norm_, key_value_norm_;
  Linear output_;  // W_O
  Dropout dropout_;
};

}  // namespace tapeformer
