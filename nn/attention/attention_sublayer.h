#pragma once

#include <tapeformer/nn/attention/attention.h>
#include <tapeformer/nn/dropout.h>
#include <tapeformer/nn/norm.h>

namespace tapeformer {

struct AttentionSublayerConfig {
  Index width = 0;        ///< C
  double dropout = 0;     ///< on the output of the attention
  double epsilon = 1e-5;  ///< of the norm
};

/// Any attention as the original transformer wraps it: residual sum, then norm.
/// Math:    y = norm(x + dropout(attention(x, memory)))
/// Shapes:  x [B, T, C], memory [B, S, memory width] -> y [B, T, C], as wide as the attention's output
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.1
class AttentionSublayer : public Module {
 public:
  AttentionSublayer(std::unique_ptr<Attention> attention, const AttentionSublayerConfig& config,
                    Generator& random);

  Tensor operator()(const Tensor& x, const Tensor& memory, const AttentionContext& context = {}) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  std::unique_ptr<Attention> attention_;
  LayerNorm norm_;
  Dropout dropout_;
};

}  // namespace tapeformer
