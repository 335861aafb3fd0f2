#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/normalization.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>

namespace tapeformer {
namespace {

void check(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const auto fits = [&](const Tensor& w) { return !w.defined() || w.shape() == Shape{x.size(-1)}; };
  if (x.rank() > 0 && fits(weight) && fits(bias)) return;
  throw ShapeError(std::string("[") + op + "] weight and bias must have the size of x's last axis; got x=" +
                   x.describe() + ", weight=" + weight.describe() + ", bias=" + bias.describe());
}

/// The forward again in plain operations.
Tensor composed(const Tensor& x, const Tensor& weight, const Tensor& bias, bool centred, double epsilon) {
  const Tensor deviation = centred ? x - mean(x, {-1}, true) : x;
  Tensor y = deviation / sqrt(mean(deviation * deviation, {-1}, true) + epsilon);
  if (weight.defined()) y = y * weight;
  return bias.defined() ? y + bias : y;
}

Tensor normalize(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, bool centred,
                 double epsilon) {
  check(op, x, weight, bias);
  const Index n = x.size(-1), rows = x.shape().elements(0, x.rank() - 1);
  const Tensor y = Tensor::empty_like(x), rstd = Tensor::empty({rows}, wide(x.dtype()), x.device());
  const Tensor centre = centred ? Tensor::empty_like(rstd) : Tensor();
  dispatch(
      op,
      [&](auto on, auto* px, auto* pw, auto* pb, auto* py, auto* pm, auto* pr) {
        using T = std::remove_pointer_t<decltype(py)>;
        kernels::normalize_forward(on, rows, n, centred, static_cast<kernels::Wide<T>>(epsilon), px, pw, pb,
                                   py, pm, pr);
      },
      x, weight, bias, y, wide(centre), wide(rstd));
  return record_fused(
      op, {x, weight, bias}, {x, weight, centre, rstd}, y,
      [=](const Tensor& dy, const Gradients& into) {
        dispatch(
            op,
            [&](auto on, auto* px, auto* pw, auto* pm, auto* pr, auto* pd, auto dx, auto dw, auto db) {
              using Sum = std::remove_pointer_t<decltype(dw.to)>;
              Tensor partials;  // of the sums over rows
              if (dw || db) {
                partials =
                    Tensor::empty({kernels::normalize_parts(on, rows, n), 4, n}, dtype_of<Sum>(), x.device());
              }
              Sum* sums = partials.defined() ? partials.address<Sum>() : nullptr;
              kernels::normalize_backward(on, rows, n, centred, px, pw, pm, pr, pd, sums, dx, dw, db);
            },
            x, weight, wide(centre), wide(rstd), dy, into[0], wide(into[1]), wide(into[2]));
      },
      [=] { return composed(x, weight, bias, centred, epsilon); });
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  return normalize("layer_norm", x, weight, bias, true, epsilon);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  return normalize("rms_norm", x, weight, {}, false, epsilon);
}

}  // namespace tapeformer
