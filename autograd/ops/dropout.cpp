#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/dropout.h>
#include <tapeformer/autograd/ops/dropout.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>

namespace tapeformer {
namespace {

Tensor masked(const Tensor& x, const Tensor& mask, double scale);

/// y = masked(x): linear in x, so it is its own gradient at every order.
Tensor record_masked(const Tensor& x, const Tensor& mask, double scale, const Tensor& y) {
  return record("dropout", {x}, {mask}, y, [=](const Tensor& dy, const Gradients& into) {
    if (into.recorded()) {
      into[0] += masked(dy, mask, scale);
      return;
    }
    dispatch("dropout", operands(dy, into[0]), [&](auto on, auto* from, auto to) {
      kernels::dropout_apply(on, dy.elements(), mask.address<std::int32_t>(), scale, from, to);
    });
  });
}

Tensor masked(const Tensor& x, const Tensor& mask, double scale) {
  const Tensor y = Tensor::empty_like(x);
  dispatch("dropout", operands(x, y), [&](auto on, auto* from, auto* to) {
    kernels::dropout_apply(on, x.elements(), mask.address<std::int32_t>(), scale, from, {to, false});
  });
  return record_masked(x, mask, scale, y);
}

}  // namespace

DropoutDraw draw_dropout(double probability, const DropoutKey& key) {
  // A step's blocks are numbered from step * 2^32. The stream's top bit separates them from the numbers that
  // a Generator of the same seed draws.
  const std::uint64_t stream_of_rank = key.stream ^ key.step >> 32;
  const kernels::PhiloxStream stream{key.seed, stream_of_rank ^ std::uint64_t{1} << 63, key.step << 32,
                                     key.moved_by};
  const double dropped = std::min(probability * 0x1p32 + 0.5, 0x1p32 - 1);
  return {stream, static_cast<std::uint32_t>(dropped), 1 / (1 - probability)};
}

Tensor dropout(const Tensor& x, double probability, const DropoutKey& key) {
  require(probability >= 0 && probability <= 1, "dropout", "probability must be in [0, 1]",
          {{"probability", probability}, {"x", x}});
  if (probability == 0) return x;
  if (probability == 1) return masked_fill(x, Tensor::full({}, 1, DType::boolean, x.device()), 0);
  const DropoutDraw draw = draw_dropout(probability, key);
  const Tensor mask = Tensor::empty({kernels::dropout_mask_words(x.elements())}, DType::i32, x.device());
  const Tensor y = Tensor::empty_like(x);
  dispatch("dropout", operands(x, y), [&](auto on, auto* from, auto* to) {
    kernels::dropout_forward(on, draw.stream, x.elements(), draw.dropped, draw.kept_scale, from,
                             mask.address<std::int32_t>(), to);
  });
  return record_masked(x, mask, draw.kept_scale, y);
}

}  // namespace tapeformer
