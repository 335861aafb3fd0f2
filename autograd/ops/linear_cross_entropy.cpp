#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/loss.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/kernels/reduce.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/linear_cross_entropy.h>
#include <tapeformer/autograd/ops/matmul.h>

#include <algorithm>

namespace tapeformer {
namespace {

constexpr const char* kOp = "linear_cross_entropy";
constexpr Index kChunkBytes = Index{64} << 20;

kernels::CrossEntropy check(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            const LinearCrossEntropyOptions& options) {
  if (weight.rank() != 2 || x.rank() < 1 || x.size(-1) != weight.size(1) ||
      (bias.defined() && bias.shape() != Shape{weight.size(0)})) {
    throw ShapeError("[linear_cross_entropy] x [..., C], weight [V, C] and bias [V] must fit; got x=" +
                     x.describe() + ", weight=" + weight.describe() + ", bias=" + bias.describe());
  }
  if (x.rank() != targets.rank() + 1 ||
      !std::equal(targets.shape().begin(), targets.shape().end(), x.shape().begin())) {
    throw ShapeError("[linear_cross_entropy] targets must have x's shape without the last axis; got x=" +
                     x.describe() + ", targets=" + targets.describe());
  }
  if (!(options.smoothing >= 0 && options.smoothing <= 1)) {
    throw ShapeError("[linear_cross_entropy] smoothing must be in [0, 1]; got " +
                     std::to_string(options.smoothing));
  }
  if (options.chunk < 0) {
    throw ShapeError("[linear_cross_entropy] chunk must be at least 0; got " + std::to_string(options.chunk));
  }
  kernels::CrossEntropy shape;
  shape.rows = targets.elements(), shape.n = weight.size(0);
  shape.ignored = options.ignored, shape.smoothing = options.smoothing;
  shape.counted = check_ids(kOp, "targets", targets, shape.n, options.ignored);
  return shape;
}

/// Whether a recording tape will ask for the gradient of `x`.
bool is_tracked(const Tensor& x) { return tape_for(kOp, &x, 1) != nullptr; }

/// The three products of a linear map over some of its rows.
struct Products {
  Index rows, out, in;

  template <class T>
  void logits(const T* x, const T* weight, T* z) const {
    run(rows, out, in, false, true, in, in, 1, x, weight, kernels::Write<T>{z, false});
  }
  template <class T>
  void dx(double scale, const T* dz, const T* weight, kernels::Write<T> to) const {
    run(rows, in, out, false, false, out, in, scale, dz, weight, to);
  }
  template <class T>
  void dweight(double scale, const T* dz, const T* x, kernels::Write<T> to) const {
    run(out, in, rows, true, false, out, in, scale, dz, x, to);
  }

 private:
  template <class T>
  static void run(Index m, Index n, Index k, bool transpose_a, bool transpose_b, Index lda, Index ldb,
                  double scale, const T* a, const T* b, kernels::Write<T> c) {
    kernels::Gemm gemm;
    gemm.m = m, gemm.n = n, gemm.k = k;
    gemm.transpose_a = transpose_a, gemm.transpose_b = transpose_b;
    gemm.lda = std::max<Index>(lda, 1), gemm.ldb = std::max<Index>(ldb, 1), gemm.ldc = std::max<Index>(n, 1);
    gemm.scale = scale;
    count_flops(kOp, 2 * m * n * k);
    kernels::gemm(kernels::Cpu{}, gemm, a, b, c);
  }
};

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            const LinearCrossEntropyOptions& options) {
  const kernels::CrossEntropy shape = check(x, weight, bias, targets, options);
  const Index rows = shape.rows, out = shape.n, in = x.size(-1);
  const Index by_default = kChunkBytes / std::max<Index>(out * bytes_of(x.dtype()), 1);
  const Index chunk =
      std::clamp<Index>(options.chunk > 0 ? options.chunk : by_default, 1, std::max<Index>(rows, 1));

  // Of a single chunk dz is kept where it is smaller than dweight: the products then wait for dloss.
  const bool wants_x = is_tracked(x), wants_weight = is_tracked(weight), wants_bias = is_tracked(bias);
  const bool keeps_dz = wants_weight && rows <= chunk && rows <= in;
  const Tensor z = Tensor::empty({chunk, out}, x.dtype(), x.device());
  const Tensor dx = wants_x && !keeps_dz ? Tensor::empty_like(x) : Tensor();
  const Tensor dweight = wants_weight && !keeps_dz ? Tensor::empty_like(weight) : Tensor();
  const Tensor dbias = wants_bias ? Tensor::empty_like(bias) : Tensor();
  const Tensor loss = Tensor::empty({}, x.dtype(), x.device());
  const Tensor statistics = Tensor::empty({chunk, 2}, x.dtype(), x.device());
  const Tensor losses = Tensor::empty({rows}, DType::f64, x.device());
  const std::int32_t* target = targets.data<std::int32_t>();
  dispatch(
      kOp,
      [&](auto on, auto* px, auto* pw, auto* pb, auto* pz, auto* kept, auto* pdx, auto* pdw, auto* pdb,
          auto* y) {
        using T = std::remove_pointer_t<decltype(y)>;
        const T one = 1;
        Index from = 0;
        do {
          kernels::CrossEntropy part = shape;
          part.rows = std::min(chunk, rows - from);
          const Products products{part.rows, out, in};
          products.logits(px + from * in, pw, pz);
          if (pb != nullptr) kernels::bias_activation(on, part.rows, out, pb, {}, false, pz, pz);
          kernels::cross_entropy_forward(on, part, target + from, pz, kept, losses.data<double>() + from, y);
          const kernels::Write<T> dz{pz, false};
          if (wants_x || wants_weight || wants_bias)
            kernels::cross_entropy_backward(on, part, target + from, pz, kept, &one, dz);
          if (pdx != nullptr) products.dx(1, pz, pw, kernels::Write<T>{pdx + from * in, false});
          if (pdw != nullptr) products.dweight(1, pz, px + from * in, kernels::Write<T>{pdw, from > 0});
          if (pdb != nullptr)
            kernels::reduce_sum(on, 1, part.rows, out, pz, kernels::Write<T>{pdb, from > 0});
          from += chunk;
        } while (from < rows);
        double sum = 0;
        for (Index row = 0; row < rows; ++row) sum += losses.data<double>()[row];
        *y = shape.counted == 0 ? T(0) : static_cast<T>(sum / static_cast<double>(shape.counted));
      },
      x, weight, bias, z, statistics, dx, dweight, dbias, loss);

  const Tensor dz = keeps_dz ? z : Tensor();
  return record_fused(
      kOp, {x, weight, bias}, {x, weight, bias, dz, dx, dweight, dbias}, loss,
      [=](const Tensor& dloss, const Gradients& into) {
        dispatch(
            kOp,
            [&](auto on, auto* px, auto* pw, auto* scale, auto* pz, auto* pdx, auto* pdw, auto* pdb,
                auto to_x, auto to_weight, auto to_bias) {
              const Products products{rows, out, in};
              if (to_x && pz != nullptr) products.dx(*scale, pz, pw, to_x);
              if (to_x && pz == nullptr) kernels::scale_gradient(on, rows * in, *scale, pdx, to_x);
              if (to_weight && pz != nullptr) products.dweight(*scale, pz, px, to_weight);
              if (to_weight && pz == nullptr) kernels::scale_gradient(on, out * in, *scale, pdw, to_weight);
              if (to_bias) kernels::scale_gradient(on, out, *scale, pdb, to_bias);
            },
            x, weight, dloss, dz, dx, dweight, dbias, into[0], into[1], into[2]);
      },
      [=] { return cross_entropy(linear(x, weight, bias), targets, options); });
}

}  // namespace tapeformer
