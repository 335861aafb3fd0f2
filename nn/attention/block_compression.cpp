#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/block_compression.h>
#include <tapeformer/nn/initialization.h>

#include <cmath>

namespace tapeformer {

BlockCompression::BlockCompression(const BlockCompressionConfig& config, Generator& random)
    : config_(config),
      positions_(Tensor::empty({config.span, config.width})),
      up_(without_bias(config.stride * config.width, config.span / config.stride * config.width), random),
      down_(without_bias(config.width, config.width), random) {
  const double bound = std::sqrt(6 / static_cast<double>((config.span + 1) * config.width));
  random.fill_normal(positions_.value(), 0, 0.02);
  random.fill_uniform(up_.weight().value(), -bound, bound);
  xavier_uniform(down_.weight(), random);
}

/// The argument of silu for blocks of parts of d tokens: a product with all of W_1 for each part, and sums.
/// Shapes:  [B, S / d, G, d D] -> [B, N, G, D]
Tensor BlockCompression::hidden(const Tensor& parts) const {
  const Tensor products = up_(parts);
  const Index D = config_.width, count = config_.span / config_.stride, N = parts.size(1) - count + 1;
  Tensor sum;
  for (Index part = 0; part < count; ++part) {
    const Tensor own = slice(slice(products, 3, part * D, D), 1, part, N);
    sum = part == 0 ? own : sum + own;
  }
  return sum;
}

Tensor BlockCompression::operator()(const Tensor& x) const {
  const Index B = x.size(0), S = x.size(1), G = x.size(2), D = config_.width, d = config_.stride,
              count = config_.span / d, parts = whole_spans(S, config_.span, d) + count - 1;
  // Fewer tokens than a block make no output, from padded parts: all parameters get a gradient of zero.
  const Tensor whole = S < parts * d ? pad(x, 1, 0, parts * d) : slice(x, 1, 0, parts * d);
  const Tensor tokens = reshape(whole, {B, parts, d, G, D});
  const Tensor by_part = reshape(permute(tokens, {0, 1, 3, 2, 4}), {B, parts, G, d * D});
  return down_(silu(hidden(by_part) + hidden(reshape(positions_, {1, count, 1, d * D}))));
}

void BlockCompression::visit(ParameterVisitor& visitor) {
  visitor.parameter("positions", positions_);
  visitor.child("up", up_);
  visitor.child("down", down_);
}

}  // namespace tapeformer
