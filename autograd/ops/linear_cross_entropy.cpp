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

void check(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
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
  require_same_device(kOp, "targets", targets, x);
}

/// Whether a recording tape will ask for the gradient of `x`.
bool is_tracked(const Tensor& x) { return tape_for(kOp, &x, 1) != nullptr; }

/// The three products of a linear map over some of its rows, on a device.
template <class On>
struct Products {
  On on;
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
  void dweight(double scale, const T* dz, const T* x, kernels::Write<kernels::Wide<T>> to) const {
    run(out, in, rows, true, false, out, in, scale, dz, x, to);
  }

 private:
  template <class T, class C>
  void run(Index m, Index n, Index k, bool transpose_a, bool transpose_b, Index lda, Index ldb, double scale,
           const T* a, const T* b, kernels::Write<C> c) const {
    kernels::Gemm gemm;
    gemm.m = m, gemm.n = n, gemm.k = k;
    gemm.transpose_a = transpose_a, gemm.transpose_b = transpose_b;
    gemm.lda = std::max<Index>(lda, 1), gemm.ldb = std::max<Index>(ldb, 1), gemm.ldc = std::max<Index>(n, 1);
    gemm.scale = scale;
    count_flops(kOp, 2 * m * n * k);
    kernels::gemm(on, gemm, a, b, c);
  }
};

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            const LinearCrossEntropyOptions& options) {
  check(x, weight, bias, targets, options);
  kernels::CrossEntropy shape;
  shape.rows = targets.elements(), shape.n = weight.size(0);
  shape.ignored = options.ignored, shape.smoothing = options.smoothing;
  const Tensor counted = check_ids(kOp, "targets", targets, shape.n, options.ignored);
  const Index rows = shape.rows, out = shape.n, in = x.size(-1);
  const Index by_default = kChunkBytes / std::max<Index>(out * bytes_of(x.dtype()), 1);
  const Index chunk =
      std::clamp<Index>(options.chunk > 0 ? options.chunk : by_default, 1, std::max<Index>(rows, 1));

  // Of a single chunk dz is kept where it is smaller than dweight: the products then wait for dloss. Not on a
  // GPU, where the host, which tells products their factor, would have to wait for it too.
  const Device device = x.device();
  const DType type = wide(x.dtype());
  const bool wants_x = is_tracked(x), wants_weight = is_tracked(weight), wants_bias = is_tracked(bias);
  const bool keeps_dz = wants_weight && rows <= chunk && rows <= in && !device.is_cuda();
  const Tensor z = Tensor::empty({chunk, out}, x.dtype(), device);
  const Tensor dx = wants_x && !keeps_dz ? Tensor::empty_like(x) : Tensor();
  const Tensor dweight = wants_weight && !keeps_dz ? Tensor::empty(weight.shape(), type, device) : Tensor();
  const Tensor dbias = wants_bias ? Tensor::empty(bias.shape(), type, device) : Tensor();
  const Tensor loss = Tensor::empty({}, type, device);
  const Tensor statistics = Tensor::empty({chunk, 2}, type, device);
  const Tensor losses = Tensor::empty({rows}, DType::f64, device);
  dispatch(
      kOp,
      [&](auto on, auto* px, auto* pw, auto* pb, auto* pz, auto* kept, auto* pdx, auto* pdw, auto* pdb,
          auto* y) {
        using T = std::remove_pointer_t<decltype(pz)>;
        const std::int32_t* count = counted.template address<std::int32_t>();
        double* each = losses.template address<double>();
        Index from = 0;
        do {
          kernels::CrossEntropy part = shape;
          part.rows = std::min(chunk, rows - from);
          const std::int32_t* target = targets.template address<std::int32_t>() + from;
          const Products<decltype(on)> products{on, part.rows, out, in};
          products.logits(px + from * in, pw, pz);
          if (pb != nullptr) kernels::bias_activation(on, part.rows, out, pb, {}, false, pz, pz);
          kernels::cross_entropy_forward(on, part, target, pz, kept, each + from);
          if (wants_x || wants_weight || wants_bias) {
            const kernels::Write<T> dz{pz, false};
            kernels::cross_entropy_backward(on, part, target, count, pz, kept, nullptr, dz);
          }
          if (pdx != nullptr) products.dx(1, pz, pw, kernels::Write<T>{pdx + from * in, false});
          if (pdw != nullptr) products.dweight(1, pz, px + from * in, {pdw, from > 0});
          if (pdb != nullptr) kernels::reduce_sum(on, 1, part.rows, out, pz, {pdb, from > 0});
          from += chunk;
        } while (from < rows);
        kernels::mean_loss(on, rows, each, count, y);
      },
      x, weight, bias, z, wide(statistics), dx, wide(dweight), wide(dbias), wide(loss));

  const Tensor dz = keeps_dz ? z : Tensor();
  return record_fused(
      kOp, {x, weight, bias}, {x, weight, bias, dz, dx, dweight, dbias}, loss,
      [=](const Tensor& dloss, const Gradients& into) {
        const double scale = dz.defined() ? dloss.item() : 1;
        dispatch(
            kOp,
            [&](auto on, auto* px, auto* pw, auto* factor, auto* pz, auto* pdx, auto* pdw, auto* pdb,
                auto to_x, auto to_weight, auto to_bias) {
              const Products<decltype(on)> products{on, rows, out, in};
              if (to_x && pz != nullptr) products.dx(scale, pz, pw, to_x);
              if (to_x && pz == nullptr) kernels::scale_gradient(on, rows * in, factor, pdx, to_x);
              if (to_weight && pz != nullptr) products.dweight(scale, pz, px, to_weight);
              if (to_weight && pz == nullptr) kernels::scale_gradient(on, out * in, factor, pdw, to_weight);
              if (to_bias) kernels::scale_gradient(on, out, factor, pdb, to_bias);
            },
            x, weight, wide(dloss), dz, dx, wide(dweight), wide(dbias), into[0], wide(into[1]),
            wide(into[2]));
      },
      [=] { return cross_entropy(linear(x, weight, bias), targets, options); });
}

}  // namespace tapeformer
