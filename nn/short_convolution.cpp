#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/causal_convolution.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/short_convolution.h>

namespace tapeformer {

Tensor ConvolutionCache::extended(const Tensor& x, Index past) {
  const Shape shape{x.size(0), past, x.size(2)};
  const bool fits = held_.defined() && held_.shape() == shape && held_.dtype() == x.dtype();
  if (!starts_ && !fits)
    throw ShapeError(
        "[short_convolution] tokens must have the rows and columns of those before them; got x=" +
        x.describe() + " after " + held_.describe() + "; try reorder() or clear()");
  if (starts_ && !fits) held_ = Tensor::empty(shape, x.dtype(), x.device());
  const Tensor all = starts_ ? pad(x, 1, past, past + x.size(1)) : concat({held_, x}, 1);
  held_.copy_from(slice(all, 1, x.size(1), past));
  starts_ = false;
  return all;
}

void ConvolutionCache::reorder(const std::vector<std::int32_t>& rows) {
  if (rows.empty()) return clear();
  if (held_.defined()) pick_rows(held_, rows);
}

void ConvolutionCache::clear() {
  held_ = {};
  restart();
}

ShortConvolution::ShortConvolution(const ShortConvolutionConfig& config) : taps_(config.taps) {
  if (config.width < 1 || taps_ < 1)
    throw Error(
        format("[short_convolution] width and taps must be positive; got width={}, taps={}; try 4 taps",
               config.width, taps_));
  weight_ = Parameter(Tensor::zeros({taps_ * config.width}));
}

Tensor ShortConvolution::operator()(const Tensor& x) const { return causal_convolution(x, weight_); }

Tensor ShortConvolution::operator()(const Tensor& x, ConvolutionCache& cache) const {
  const NoGradGuard pause;
  const Index past = taps_ - 1;
  return slice((*this)(cache.extended(x, past)), 1, past, x.size(1));
}

void ShortConvolution::visit(ParameterVisitor& visitor) { visitor.parameter("weight", weight_); }

}  // namespace tapeformer
