// An operation of your own: forward, backward, and the check that they belong together.
#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>

#include <cmath>
#include <cstdio>

using namespace tapeformer;

/// A loss between the square and the absolute value: near zero it is x^2 / 2, far from it |x| - log 2.
/// Math:    y = |x| + log(1 + exp(-2 |x|)) - log 2, which is log(cosh(x)) without its overflow
/// Grad:    dx = dy tanh(x)
/// Shapes:  x -> y of the same shape
/// Saves:   x
/// Throws:  DTypeError unless x is f32 or f64
template <class T>
void log_cosh_loop(Index n, const T* x, T* y) {
  for (Index i = 0; i < n; ++i) {
    const T size = std::fabs(x[i]);
    y[i] = size + std::log1p(std::exp(-2 * size)) - static_cast<T>(M_LN2);
  }
}

Tensor log_cosh(const Tensor& x) {
  const Tensor y = Tensor::empty_like(x);
  if (x.dtype() == DType::f64) {
    log_cosh_loop(x.elements(), x.data<double>(), y.data<double>());
  } else {
    log_cosh_loop(x.elements(), x.data<float>(), y.data<float>());
  }
  return record("log_cosh", {x}, {x}, y,
                [=](const Tensor& dy, const Gradients& into) { into[0] += dy * tanh(x); });
}

int main() {
  Generator random(1);
  const Tensor x = Tensor::randn({3, 4}, random, DType::f64),
               target = Tensor::randn({3, 4}, random, DType::f64);
  GradcheckOptions options;
  options.second_order = true;
  const GradcheckReport report =
      gradcheck([&] { return mean(log_cosh(x - target)); }, {{"x", x}, {"target", target}}, options);
  std::printf("gradients: %s\n", report.passed() ? "passed" : "FAILED");

  const Tensor far = log_cosh(Tensor::from<float>({0, 1, 1000}));
  std::printf("log cosh of 0, 1 and 1000: %.4f %.4f %.4f\n", far.at(0), far.at(1), far.at(2));
  return report.passed() ? 0 : 1;
}
