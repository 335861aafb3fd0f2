#pragma once

#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/module.h>

#include <optional>

namespace tapeformer {

struct LinearConfig {
  Index inputs = 0;                      ///< In
  Index outputs = 0;                     ///< Out
  bool bias = true;                      ///< whether a bias is added to the product
  std::optional<Unary> activation = {};  ///< applied to the result in the same pass
};

/// Configuration of a product alone, without bias and activation.
inline LinearConfig without_bias(Index inputs, Index outputs) { return {inputs, outputs, false, {}}; }

/// Affine map of the last axis.
/// Math:    y = f(x weight^T + bias)
/// Shapes:  x [..., inputs] -> y [..., outputs]; weight [outputs, inputs], bias [outputs]
/// Initial: weight and bias uniform in +-1/sqrt(inputs), PyTorch's default
class Linear : public Module {
 public:
  Linear(const LinearConfig& config, Generator& random);

  Tensor operator()(const Tensor& x) const;
  void visit(ParameterVisitor& visitor) override;

  /// [outputs, inputs].
  Parameter& weight() { return weight_; }
  /// [outputs], or undefined.
  Parameter& bias() { return bias_; }
  /// [outputs, inputs].
  const Parameter& weight() const { return weight_; }
  /// [outputs], or undefined.
  const Parameter& bias() const { return bias_; }

 private:
  std::optional<Unary> activation_;
  Parameter weight_, bias_;
};

}  // namespace tapeformer
