#pragma once

#include <tapeformer/nn/dropout.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

/// "relu", "gelu", "gelu_tanh" or "silu". Throws: Error for any other name.
Unary activation_named(const std::string& name);

struct FeedForwardConfig {
  Index width = 0;
  Index hidden = 0;  ///< F; 0 for 4 * width
  Unary activation = Unary::relu;
  double dropout = 0;  ///< after the activation
  bool bias = true;
};

/// The position-wise network of a transformer layer.
/// Math:    y = down(dropout(f(up(x))))
/// Shapes:  x [..., C] -> y [..., C]
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.3
class FeedForward : public Module {
 public:
  FeedForward(const FeedForwardConfig& config, Generator& random);

  Tensor operator()(const Tensor& x) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  Linear up_, down_;
  Dropout dropout_;
};

}  // namespace tapeformer
