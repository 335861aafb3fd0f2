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

constexpr const char* kAdapterA = "lora_a";  ///< the name of an adapter's matrix A in a Linear
constexpr const char* kAdapterB = "lora_b";  ///< the name of its matrix B

/// Affine map of the last axis. With an adapter s B A is added to the weight, which stays as it is.
/// Math:    y = f(x weight^T + bias), or with an adapter f(x weight^T + bias + s (x A^T) B^T)
/// Shapes:  x [..., inputs] -> y [..., outputs]; weight [outputs, inputs], bias [outputs], A [r, inputs],
///          B [outputs, r]
/// Initial: weight and bias uniform in +-1/sqrt(inputs), PyTorch's default
class Linear : public Module {
 public:
  Linear(const LinearConfig& config, Generator& random);

  Tensor operator()(const Tensor& x) const;
  void visit(ParameterVisitor& visitor) override;

  /// Adds an adapter, or replaces it, with a new A and a B of zeros, of the weight's type and on its device.
  /// Add it once the layer has its values.
  void adapt(Index rank, double scale, Generator& random);
  /// True for a layer with an adapter.
  bool is_adapted() const { return adapter_a_.defined(); }
  /// weight + s B A: the weight itself without an adapter.
  Tensor whole_weight() const;

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
  Parameter weight_, bias_, adapter_a_, adapter_b_;
  double adapter_scale_ = 0;
};

}  // namespace tapeformer
