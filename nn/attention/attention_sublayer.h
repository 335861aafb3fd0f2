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
                    Generator& random)
      : attention_(std::move(attention)),
        norm_({config.width, config.epsilon, true}),
        dropout_({config.dropout}, random) {}

  Tensor operator()(const Tensor& x, const Tensor& memory, const AttentionContext& context = {}) const {
    const Tensor attended_btc = (*attention_)(x, memory, context);
    return norm_(x, attended_btc, {dropout_.active_probability(), dropout_.next_key()}).y;
  }
  void visit(ParameterVisitor& visitor) override {
    visitor.child("attention", *attention_);
    visitor.child("norm", norm_);
    visitor.child("dropout", dropout_);
  }

 private:
  std::unique_ptr<Attention> attention_;
  LayerNorm norm_;
  Dropout dropout_;
};

}  // namespace tapeformer
