#pragma once

#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/module.h>

namespace tapeformer {

/// Self-attention without parameters, in its smallest form: every token gathers the tokens that resemble it.
/// `weights` receives the softmax.
/// Math:    y = softmax(scale x x^T) x
/// Shapes:  x [..., T, C] -> y [..., T, C]; weights [..., T, T]
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, equation 1 with Q = K = V = x
Tensor self_attention(const Tensor& x, double scale = 1, Tensor* weights = nullptr);

struct MatrixSelfAttentionConfig {
  Index width = 0;        ///< C, of the input
  Index key_width = 0;    ///< D, of queries and keys; 0 for width
  Index value_width = 0;  ///< E, of values and output; 0 for key_width
  double scale = 0;       ///< of the scores; 0 for 1 / sqrt(D)
};

/// Self-attention on three bare matrices, in plain operations.
/// Math:    q = x query, k = x key, v = x value; y = softmax(scale q k^T) v
/// Shapes:  x [..., T, C], query and key [C, D], value [C, E] -> y [..., T, E]; weights [..., T, T]
/// Initial: Xavier uniform
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1
class MatrixSelfAttention : public Module {
 public:
  MatrixSelfAttention(const MatrixSelfAttentionConfig& config, Generator& random);

  /// `weights` receives the softmax.
  Tensor operator()(const Tensor& x, Tensor* weights = nullptr) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  double scale_;
  Parameter query_, key_, value_;
};

}  // namespace tapeformer
