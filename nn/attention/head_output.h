#pragma once

#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/nn/linear.h>

#include <optional>

namespace tapeformer {

/// Takes from each head's output its part along the token's own value.
/// Math:    z_h = y_h - (y_h . v_g) v_g / |v_g|^2, v_g being what head h reads of its own token
/// Shapes:  y [B, T, H, E], values [B, T, G, E] -> [B, T, H, E]
/// Source:  Zhai 2026, arXiv:2603.09078
Tensor without_own_value(const Tensor& y, const Tensor& values);

/// The sigmoid gates that AttentionConfig::output_gate chooses.
/// Math:    y_h = sigmoid(W x)_h y_h, a number for each head, or for each component of each head
/// Shapes:  heads [B, T, H, E], x [B, T, C] -> [B, T, H, E]; W [H, C] or [H E, C]
/// Initial: Xavier uniform
/// Source:  Qiu et al. 2025, arXiv:2505.06708, equations 3 and 5
class HeadGates : public Module {
 public:
  /// For a resolved config.
  HeadGates(const AttentionConfig& config, Generator& random);

  Tensor operator()(const Tensor& heads, const Tensor& x) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  std::optional<Linear> gate_;  // none without gates
};

}  // namespace tapeformer
