#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/loss.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>

namespace tapeformer {
namespace {

constexpr const char* kHeadLoss = "linear_cross_entropy";
constexpr Index kChunkBytes = Index{64} << 20;  // more than a CPU's cache, but little memory
// On a GPU each chunk reads and writes dweight: with 8 times the size that is a few percent of its products.
constexpr Index kGpuChunkBytes = Index{512} << 20;
constexpr Index kTileRows = 128;  // rows of a tile of products on a GPU

/// Distance of two rows of logits. On a GPU rows begin at multiples of 16 bytes; otherwise, for a vocabulary
/// of 50257 say, products use slow kernels.
Index lead_of(Index out, const Tensor& x) {
  const Index step = x.device().is_cuda() ? 16 / bytes_of(x.dtype()) : 1;
  return std::max<Index>((out + step - 1) / step * step, 1);
}

/// The number of rows whose logits exist at a time: on a GPU chunks have about the same size.
Index chunk_of(Index rows, Index lead, Index wanted, const Tensor& x) {
  Index chunk = wanted;
  if (chunk == 0 && x.device().is_cuda()) {
    const Index chunks = rows * lead * bytes_of(x.dtype()) / kGpuChunkBytes + 1;
    chunk = (rows / chunks + kTileRows) / kTileRows * kTileRows;
  } else if (chunk == 0) {
    chunk = kChunkBytes / (lead * bytes_of(x.dtype()));
  }
  return std::clamp<Index>(chunk, 1, std::max<Index>(rows, 1));
}

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
  if (!(options.softcap >= 0)) {
    throw ShapeError("[linear_cross_entropy] softcap must not be negative; got " +
                     std::to_string(options.softcap));
  }
  if (options.chunk < 0) {
    throw ShapeError("[linear_cross_entropy] chunk must be at least 0; got " + std::to_string(options.chunk));
  }
  require_same_device(kHeadLoss, "targets", targets, x);
}

/// True if a recording tape will need the gradient of `x`.
bool is_tracked(const Tensor& x) { return tape_for(kHeadLoss, &x, 1) != nullptr; }

/// A linear map of some rows and its gradients, on a device; rows of z begin `lead` numbers apart.
template <class On>
struct Map {
  On on;
  Index rows, out, in, lead;

  template <class T>
  void logits(const T* x, const T* weight, const T* bias, T* z) const {
    const kernels::Gemm gemm = product(rows, out, in, in, in, lead, 1);
    kernels::linear_forward(on, with(gemm, false, true), x, weight, bias, {}, static_cast<T*>(nullptr), z);
  }
  template <class T>
  void dx(double scale, const T* dz, const T* weight, kernels::Write<T> to) const {
    kernels::gemm(on, product(rows, in, out, lead, in, in, scale), dz, weight, to);
  }
  /// dbias is the sum of dz without the scale.
  template <class T, class W = kernels::Wide<T>>
  void dweight(double scale, const T* dz, const T* x, kernels::Write<W> to, kernels::Write<W> dbias) const {
    if (!to && !dbias) return;
    const kernels::Gemm gemm = product(out, in, rows, lead, in, in, scale, bool(to));
    kernels::linear_weight_gradient(on, with(gemm, true, false), dz, x, to, dbias);
  }

 private:
  static kernels::Gemm product(Index m, Index n, Index k, Index lda, Index ldb, Index ldc, double scale,
                               bool counts = true) {
    kernels::Gemm gemm;
    gemm.m = m, gemm.n = n, gemm.k = k;
    gemm.lda = std::max<Index>(lda, 1), gemm.ldb = std::max<Index>(ldb, 1),
    gemm.ldc = std::max<Index>(ldc, 1);
    gemm.scale = scale;
    if (counts) count_flops(kHeadLoss, 2 * m * n * k);
    return gemm;
  }
  static kernels::Gemm with(kernels::Gemm gemm, bool transpose_a, bool transpose_b) {
    gemm.transpose_a = transpose_a, gemm.transpose_b = transpose_b;
    return gemm;
  }
};

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            const LinearCrossEntropyOptions& options) {
  check(x, weight, bias, targets, options);
  kernels::CrossEntropy shape;
  shape.rows = targets.elements(), shape.n = weight.size(0), shape.lead = lead_of(shape.n, x);
  shape.ignored = options.ignored, shape.smoothing = options.smoothing, shape.softcap = options.softcap;
  const Tensor counted = check_ids(kHeadLoss, "targets", targets, shape.n, options.ignored);
  const Index rows = shape.rows, out = shape.n, in = x.size(-1);
  const Index chunk = chunk_of(rows, shape.lead, options.chunk, x);

  // For a single chunk dz is kept if it is smaller than dweight: the products are then computed when dloss is
  // known. Not on a GPU: there the host passes products their factor, and would have to wait for it.
  const Device device = x.device();
  const DType type = wide(x.dtype());
  const bool wants_x = is_tracked(x), wants_weight = is_tracked(weight), wants_bias = is_tracked(bias);
  const bool keeps_dz = wants_weight && rows <= chunk && rows <= in && !device.is_cuda();
  const Tensor z = Tensor::empty({chunk, shape.lead}, x.dtype(), device);
  const Tensor dx = wants_x && !keeps_dz ? Tensor::empty_like(x) : Tensor();
  const Tensor dweight = wants_weight && !keeps_dz ? Tensor::empty(weight.shape(), type, device) : Tensor();
  const Tensor dbias = wants_bias ? Tensor::empty(bias.shape(), type, device) : Tensor();
  const Tensor loss = Tensor::empty({}, type, device);
  const Tensor statistics = Tensor::empty({chunk, 2}, type, device);
  const Tensor losses = Tensor::empty({rows}, DType::f64, device);
  dispatch(
      kHeadLoss,
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
          const Map<decltype(on)> map{on, part.rows, out, in, shape.lead};
          map.logits(px + from * in, pw, pb, pz);
          if (wants_x || wants_weight || wants_bias) {
            kernels::cross_entropy_with_gradient(on, part, target, count, pz, kept, each + from);
          } else {
            kernels::cross_entropy_forward(on, part, target, pz, kept, each + from);
          }
          if (pdx != nullptr) map.dx(1, pz, pw, kernels::Write<T>{pdx + from * in, false});
          map.dweight(1, pz, px + from * in, {pdw, from > 0}, {pdb, from > 0});
          from += chunk;
        } while (from < rows);
        kernels::mean_loss(on, rows, each, count, y);
      },
      x, weight, bias, z, wide(statistics), dx, wide(dweight), wide(dbias), wide(loss));

  const Tensor dz = keeps_dz ? z : Tensor();
  return record_fused(
      kHeadLoss, {x, weight, bias}, {x, weight, bias, dz, dx, dweight, dbias}, loss,
      [=](const Tensor& dloss, const Gradients& into) {
        const double scale = dz.defined() ? dloss.item() : 1;
        dispatch(
            kHeadLoss,
            [&](auto on, auto* px, auto* pw, auto* factor, auto* pz, auto* pdx, auto* pdw, auto* pdb,
                auto to_x, auto to_weight, auto to_bias) {
              const Map<decltype(on)> map{on, rows, out, in, shape.lead};
              if (to_x && pz != nullptr) map.dx(scale, pz, pw, to_x);
              if (to_x && pz == nullptr) kernels::scale_gradient(on, rows * in, factor, pdx, to_x);
              if (pz != nullptr) map.dweight(scale, pz, px, to_weight, {});
              if (to_weight && pz == nullptr) kernels::scale_gradient(on, out * in, factor, pdw, to_weight);
              if (to_bias) kernels::scale_gradient(on, out, factor, pdb, to_bias);
            },
            x, weight, wide(dloss), dz, dx, wide(dweight), wide(dbias), into[0], wide(into[1]),
            wide(into[2]));
      },
      [=] { return cross_entropy(linear(x, weight, bias), targets, options); });
}

}  // namespace tapeformer
