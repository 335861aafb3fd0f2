#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/nn/dropout.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

/// "relu", "relu_squared", "gelu", "gelu_tanh" or "silu". Throws: Error for any other name.
Unary activation_named(const std::string& name);
/// A field that holds an activation, by its name.
Property named(Unary& activation);

/// Bounds of gated silu, as in gpt-oss: see gated_within().
struct SwigluLimit {
  double limit = 0;      ///< of both halves; 0 for none
  double alpha = 1.702;  ///< the gain in the sigmoid

  void describe(const FieldVisitor& field);
  /// Throws: Error if the network has no gated silu to bound
  void check(Unary activation, bool gated) const;
};

struct FeedForwardConfig {
  Index width = 0;                 ///< C
  Index hidden = 0;                ///< F; 0 for 4 * width
  Unary activation = Unary::relu;  ///< of the hidden layer
  double dropout = 0;              ///< after the activation
  bool bias = true;                ///< on both projections
  bool gated = false;              ///< the activation of one half of up's output gates the other
  SwigluLimit swiglu = {};         ///< of gated silu

  /// F, with 0 replaced by its default.
  Index hidden_width() const { return hidden > 0 ? hidden : 4 * width; }
  /// The hidden values of a gated network.
  Tensor gate(const Tensor& up) const;
};

/// The position-wise network of a transformer layer.
/// Math:    y = down(dropout(f(up(x)))); gated: y = down(dropout(f(a) * b)), [a, b] = up(x), or with a limit
///          gated_within() of them
/// Shapes:  x [..., C] -> y [..., C]; up's weight is [F, C], or gated [2 F, C]
/// Throws:  Error for a swiglu limit of a network without gated silu
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.3; gated (SwiGLU with f = silu): Shazeer 2020,
///          arXiv:2002.05202
class FeedForward : public Module {
 public:
  FeedForward(const FeedForwardConfig& config, Generator& random);

  Tensor operator()(const Tensor& x) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  FeedForwardConfig config_;
  Linear up_, down_;
  Dropout dropout_;
};

}  // namespace tapeformer
