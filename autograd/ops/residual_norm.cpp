#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/dropout.h>
#include <tapeformer/autograd/kernels/normalization.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/residual_norm.h>
#include <tapeformer/autograd/tape/tape.h>

namespace tapeformer {
namespace {

/// A bit for each element of the branch that is kept, and the factor of those.
struct Mask {
  Tensor bits;
  double scale = 1;
  const std::int32_t* address() const { return address_or_null<std::int32_t>(bits); }
};

Mask mask_of(const Tensor& x, double probability, const DropoutKey& key) {
  if (probability == 0) return {};
  const DropoutDraw draw = draw_dropout(probability, key);
  Mask mask{Tensor::empty({kernels::dropout_mask_words(x.elements())}, DType::i32, x.device()),
            draw.kept_scale};
  dispatch_on("dropout_mask", x.device(), [&](auto on) {
    kernels::dropout_mask(on, draw.stream, x.elements(), draw.dropped, mask.bits.address<std::int32_t>());
  });
  return mask;
}

/// The gradients of a norm in plain operations: returns x's, and adds those of weight and bias.
Tensor recorded_gradient(const Normalization& norm, const Tensor& x, const Tensor& dy,
                         const GradientSlot& dweight, const GradientSlot& dbias) {
  const Tensor deviation = norm.centred ? x - mean(x, {-1}, true) : x;
  const Tensor root = sqrt(mean(deviation * deviation, {-1}, true) + norm.epsilon);
  const Tensor normal = deviation / root, g = norm.weight.defined() ? dy * norm.weight : dy;
  if (dweight) dweight += dy * normal;
  if (dbias) dbias += dy;
  const Tensor along = g - normal * mean(g * normal, {-1}, true);
  return (norm.centred ? along - mean(g, {-1}, true) : along) / root;
}

/// Memory for the gradient of the sum, which holds the contributions of other uses of the sum, if any.
Tensor gradient_of_sum(const Tensor& brought, const Tensor& sum) {
  if (!brought.defined()) return Tensor::empty_like(sum);
  return brought.is_sole_owner() ? brought : brought.clone();
}

SumAndNorm add_normalize(const Normalization& norm, const Tensor& x, const Tensor& branch,
                         const BranchDropout& dropped) {
  check_normalization(norm, x);
  require(branch.shape() == x.shape(), norm.op, "x and branch must have one shape",
          {{"x", x}, {"branch", branch}});
  const auto [probability, key] = dropped;
  if (!(probability >= 0 && probability < 1)) {  // 1 drops the whole branch, and dropout() refuses others
    const Tensor sum = x + dropout(branch, probability, key);
    return {sum, normalize(norm, sum)};
  }
  const Mask mask = mask_of(x, probability, key);
  const Tensor sum = Tensor::empty_like(x);
  const Index n = x.size(-1), rows = x.shape().elements(0, x.rank() - 1);
  const Tensor y = Tensor::empty_like(x);
  const Tensor rstd = Tensor::empty({rows}, wide(x.dtype()), x.device());
  const Tensor mean = norm.centred ? Tensor::empty_like(rstd) : Tensor();
  dispatch(
      norm.op, operands(x, branch, sum, norm.weight, norm.bias, y, wide(mean), wide(rstd)),
      [&](auto on, auto* px, auto* added, auto* total, auto* pw, auto* pb, auto* py, auto* pm, auto* pr) {
        using T = std::remove_pointer_t<decltype(py)>;
        const kernels::Branch<T> joins{added, mask.address(), static_cast<kernels::Wide<T>>(mask.scale),
                                       total};
        kernels::normalize_forward(on, rows, n, norm.centred, norm.epsilon, px, joins, pw, pb, py, pm, pr);
      });
  const Tensor inputs[] = {x, branch, norm.weight, norm.bias};
  Tape* tape = tape_for(norm.op, inputs, 4);
  if (tape == nullptr) return {sum, y};
  const Tensor saved[] = {sum, norm.weight, mean, rstd, mask.bits}, outputs[] = {sum, y};
  const auto backward = [=, probability = probability, key = key](const Tensor&, const Gradients& into) {
    const Tensor& dsum = into.output(0);
    Tensor dy = into.output(1);
    if (!dy.defined()) dy = Tensor::full(sum.shape(), 0, sum.dtype(), sum.device());
    if (into.recorded()) {
      Tensor dx = recorded_gradient(norm, sum, dy, into[2], into[3]);
      if (dsum.defined()) dx = dx + dsum;
      into[0] += dx;
      if (into[1]) into[1] += dropout(dx, probability, key);
      return;
    }
    const bool flows = into[0] || into[1], shares = into[1] && mask.bits.defined();
    const Tensor dx = flows ? gradient_of_sum(dsum, sum) : Tensor();
    const Tensor dbranch = shares ? Tensor::empty_like(sum) : dx;
    dispatch(
        norm.op,
        operands(sum, norm.weight, wide(mean), wide(rstd), dy, dx, shares ? dbranch : Tensor(), wide(into[2]),
                 wide(into[3])),
        [&](auto on, auto* px, auto* pw, auto* pm, auto* pr, auto* pd, auto* to, auto* branch_to, auto dw,
            auto db) {
          using T = std::remove_pointer_t<decltype(branch_to)>;
          using Sum = std::remove_pointer_t<decltype(dw.to)>;
          const PartialSums sums(dw, dw || db, {kernels::normalize_parts(on, rows, n), 2, n}, sum.device());
          const kernels::BranchGradient<T> shared{mask.address(), static_cast<Sum>(mask.scale), branch_to};
          kernels::normalize_backward(on, rows, n, norm.centred, px, pw, pm, pr, pd, sums.address,
                                      kernels::Write<T>{to, dsum.defined()}, shared, dw, db);
        });
    if (into[0]) into[0] += dx;
    if (into[1]) into[1] += dbranch;
  };
  append_node(*tape, norm.op, inputs, 4, saved, 5, outputs, 2, Backward::of(backward), {});
  return {sum, y};
}

}  // namespace

SumAndNorm add_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                          double epsilon, const BranchDropout& dropped) {
  return add_normalize({"add_layer_norm", weight, bias, true, epsilon}, x, branch, dropped);
}

SumAndNorm add_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, double epsilon,
                        const BranchDropout& dropped) {
  return add_normalize({"add_rms_norm", weight, {}, false, epsilon}, x, branch, dropped);
}

}  // namespace tapeformer
