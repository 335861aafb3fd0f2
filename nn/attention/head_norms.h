#pragma once

#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/attention/heads.h>

namespace tapeformer {

/// The norms of queries and keys that AttentionConfig::qk_norm chooses.
/// Math:    rms: each head is rms_norm(head) * weight, of queries or of keys; joint: rms_norm(all heads of a
///          token) * weight; l2: q_h = weight_h q_h / |q_h| and k_g = k_g / |k_g|, with scores q_h k_g^T
/// Initial: gains of 1; l2: sqrt(D), so that the first scores are as large as with rms
/// Source:  l2: Henry et al. 2020, arXiv:2010.04245, here with a factor for each head; rms: Qwen3,
///          arXiv:2505.09388; joint: OLMo 2, arXiv:2501.00656
class HeadNorms : public Module {
 public:
  /// For a resolved config.
  explicit HeadNorms(const AttentionConfig& config);

  /// The heads of projected queries, [B, T, H D] -> [B, T, H, D].
  Tensor query(const Tensor& x) const;
  /// The heads of projected keys, [B, S, G D] -> [B, S, G, D].
  Tensor key(const Tensor& x) const;
  /// False if heads must be taken out of a packed projection to norm them.
  bool takes_packed() const { return kind_ == QkNorm::none || kind_ == QkNorm::rms; }
  /// The queries and keys at the beginning of packed rows.
  Tensor packed(const Tensor& x) const;
  /// AttentionOptions::scale for normed queries and keys; 0 for the default.
  double scale() const { return kind_ == QkNorm::l2 ? 1 / static_cast<double>(key_width_) : 0; }
  void visit(ParameterVisitor& visitor) override;

  /// Numbers that it has, and that a tape keeps for N rows of queries and M of keys.
  static double parameters(const AttentionConfig& config);
  /// See parameters().
  static double activations(const AttentionConfig& config, double N, double M);

 private:
  Tensor normed(const Tensor& x, Index heads, const Parameter& gain) const;

  QkNorm kind_;
  Index heads_, groups_, key_width_;
  double epsilon_;
  Parameter query_gain_, key_gain_;
};

}  // namespace tapeformer
