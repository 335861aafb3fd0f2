#pragma once

#include <tapeformer/nn/module.h>

namespace tapeformer {

/// The last inputs of a ShortConvolution, for a call whose tokens follow them. For inference.
class ConvolutionCache {
 public:
  /// The `past` tokens before x, zeros before the first call, and x. The last `past` of all are kept.
  /// Shapes:  x [R, T, C] -> [R, past + T, C]
  /// Throws:  ShapeError if the number of rows changes between calls
  Tensor extended(const Tensor& x, Index past);
  /// Row i becomes the former row rows[i]. Throws: ShapeError
  void reorder(const std::vector<std::int32_t>& rows);
  /// The next tokens are the first ones; the memory stays, because graphs of steps refer to it.
  void restart() { starts_ = true; }
  /// Removes all tokens.
  void clear();
  /// Bytes of the tokens that it holds.
  Index bytes() const { return held_.defined() ? held_.bytes() : 0; }

 private:
  Tensor held_;  // [R, past, C]
  bool starts_ = true;
};

struct ShortConvolutionConfig {
  Index width = 0;  ///< C
  Index taps = 4;   ///< K, the number of tokens in a sum: each and those right before it
};

/// Each token plus a learned weighted sum of itself and the K - 1 before it, column by column. The weight is
/// one row of values, and so neither decayed nor orthogonalised, as matrices are.
/// Math:    y_t = x_t + sum_j weight_j * x_{t-j}, j < K
/// Shapes:  x [B, T, width] -> [B, T, width]; weight [K width]
/// Initial: weight 0, so that a model begins as it would without the layer
/// Throws:  Error unless width and K are positive
/// Source:  Allen-Zhu 2025, arXiv:2512.17351 ("Canon layers"); So et al. 2021, arXiv:2109.08668
class ShortConvolution : public Module {
 public:
  explicit ShortConvolution(const ShortConvolutionConfig& config);

  Tensor operator()(const Tensor& x) const;
  /// For tokens that follow those that `cache` has seen. Not recorded.
  Tensor operator()(const Tensor& x, ConvolutionCache& cache) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  Index taps_;
  Parameter weight_;
};

}  // namespace tapeformer
