// A kernel of your own: loops over memory, for an operation whose composed form would be slow.
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>

#include <cmath>
#include <cstdio>

using namespace tapeformer;

// --- loops on pointers and sizes, one template for float and double ---

/// y[b, t] = the mean of x[b, 0..t]; each row of the batch is one thread's.
template <class T>
void running_mean_forward(Index B, Index length, Index C, const T* x, T* y) {
#pragma omp parallel for
  for (Index b = 0; b < B; ++b) {
    const T* in = x + b * length * C;
    T* out = y + b * length * C;
    for (Index c = 0; c < C; ++c) {
      double sum = 0;
      for (Index t = 0; t < length; ++t) {
        sum += in[t * C + c];
        out[t * C + c] = static_cast<T>(sum / static_cast<double>(t + 1));
      }
    }
  }
}

/// dx[b, s] = sum over t >= s of dy[b, t] / (t + 1); `add` says whether dx already holds another gradient.
template <class T>
void running_mean_backward(Index B, Index length, Index C, const T* dy, T* dx, bool add) {
#pragma omp parallel for
  for (Index b = 0; b < B; ++b) {
    for (Index c = 0; c < C; ++c) {
      double sum = 0;
      for (Index t = length - 1; t >= 0; --t) {
        const Index at = (b * length + t) * C + c;
        sum += dy[at] / static_cast<double>(t + 1);
        dx[at] = static_cast<T>(sum + (add ? dx[at] : 0));
      }
    }
  }
}

// --- the operation ---

/// The mean by a product with the [T, T] matrix of shares: plain, slow, and differentiable again and again.
Tensor composed_running_mean(const Tensor& x_btc) {
  const Index T = x_btc.size(1);
  const Tensor shares_tt = Tensor::zeros({T, T}, DType::f64);
  for (Index t = 0; t < T; ++t)
    for (Index s = 0; s <= t; ++s) shares_tt.data<double>()[t * T + s] = 1 / static_cast<double>(t + 1);
  return matmul(shares_tt.to(x_btc.dtype()), x_btc);
}

/// Each token becomes the mean of itself and all before it: causal attention to everything alike.
/// Shapes:  x [B, T, C] -> y [B, T, C]
/// Throws:  ShapeError for another rank
Tensor running_mean(const Tensor& x_btc) {
  if (x_btc.rank() != 3) throw ShapeError("[running_mean] x must be [B, T, C]; got x=" + x_btc.describe());
  const Index B = x_btc.size(0), T = x_btc.size(1), C = x_btc.size(2);
  const Tensor y_btc = Tensor::empty_like(x_btc);
  const bool wide = x_btc.dtype() == DType::f64;
  if (wide) {
    running_mean_forward(B, T, C, x_btc.data<double>(), y_btc.data<double>());
  } else {
    running_mean_forward(B, T, C, x_btc.data<float>(), y_btc.data<float>());
  }
  return record_fused(
      "running_mean", {x_btc}, {}, y_btc,
      [=](const Tensor& dy, const Gradients& into) {
        const auto [dx, add] = into[0].target();  // the buffer to write
        if (wide) {
          running_mean_backward(B, T, C, dy.data<double>(), dx.data<double>(), add);
        } else {
          running_mean_backward(B, T, C, dy.data<float>(), dx.data<float>(), add);
        }
      },
      [=] { return composed_running_mean(x_btc); });
}

int main() {
  Generator random(1);
  const Tensor x_btc = Tensor::randn({2, 5, 3}, random, DType::f64);
  const Tensor fast = running_mean(x_btc), plain = composed_running_mean(x_btc);
  double difference = 0;
  for (Index i = 0; i < fast.elements(); ++i)
    difference = std::fmax(difference, std::fabs(fast.at(i) - plain.at(i)));
  const bool equal = difference < 1e-14;  // twice 5 roundings of 2^-53 each, of numbers below 4
  GradcheckOptions options;
  options.second_order = true;
  const bool right = gradcheck([&] { return running_mean(x_btc); }, {{"x", x_btc}}, options).passed();
  std::printf("equal to the composed form: %s\ngradients: %s\n", equal ? "yes" : "NO",
              right ? "passed" : "FAILED");
  return equal && right ? 0 : 1;
}
