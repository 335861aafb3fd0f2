#pragma once

#include <tapeformer/nn/linear.h>

namespace tapeformer {

struct BlockCompressionConfig {
  Index width = 0;    ///< D, of what is compressed
  Index span = 32;    ///< l, tokens of a block
  Index stride = 16;  ///< d, tokens from the start of a block to that of the next; divides l
};

/// Makes one vector of every block of l tokens by a network with one hidden layer, which all heads share. The
/// first block begins at token 0; tokens behind the last whole block are left out.
/// Math:    y_i = W_2 silu(W_1 [x_(i d) + p_0, ..., x_(i d + l - 1) + p_(l - 1)])
/// Shapes:  x [B, S, G, D] -> y [B, N, G, D], N = max(0, floor((S - l) / d) + 1); p [l, D]; W_1 is stored
///          [l / d D, d D], the matrices of the parts of d tokens one below the other; W_2 [D, D]
/// Initial: W_1 and W_2 Xavier uniform; p normal with a standard deviation of 0.02
/// Source:  Yuan et al. 2025, arXiv:2502.11089, equation 7
class BlockCompression : public Module {
 public:
  BlockCompression(const BlockCompressionConfig& config, Generator& random);

  Tensor operator()(const Tensor& x) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  Tensor hidden(const Tensor& parts) const;

  BlockCompressionConfig config_;
  Parameter positions_;  // p
  Linear up_, down_;     // W_1, W_2
};

/// The number of whole blocks of this span and stride among the first `tokens` tokens.
inline Index whole_spans(Index tokens, Index span, Index stride) {
  return tokens < span ? 0 : (tokens - span) / stride + 1;
}

}  // namespace tapeformer
