#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/loss.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/kernels/reduce.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// The checked loss of `values`, named `name` in messages, of which each row belongs to one target.
kernels::CrossEntropy checked_loss(const char* op, const char* name, const Tensor& values,
                                   const Tensor& targets, const CrossEntropyOptions& options) {
  require(values.rank() == targets.rank() + 1 &&
              std::equal(targets.shape().begin(), targets.shape().end(), values.shape().begin()),
          op, "targets must have the shape of the rows, without the last axis",
          {{name, values}, {"targets", targets}});
  require(options.smoothing >= 0 && options.smoothing <= 1, op, "smoothing must be in [0, 1]",
          {{"smoothing", options.smoothing}});
  require(options.softcap >= 0, op, "softcap must not be negative", {{"softcap", options.softcap}});
  require_same_device(op, "targets", targets, values);
  const Index rows = targets.elements(), n = values.size(-1);
  return {rows, n, n, options.ignored, options.smoothing, options.softcap};
}

/// The forward pass in plain operations. Ignored rows are filled with zeros and have no weight.
Tensor composed(const kernels::CrossEntropy& shape, const Tensor& logits, const Tensor& targets,
                const Tensor& counts) {
  const Tensor picks = Tensor::empty({shape.rows, 1}, DType::i32, Device::cpu());
  const Tensor ignored = Tensor::empty({shape.rows, 1}, DType::boolean, Device::cpu());
  const Tensor here = targets.to(Device::cpu());
  for (Index row = 0; row < shape.rows; ++row) {
    const std::int32_t target = here.data<std::int32_t>()[row];
    ignored.data<bool>()[row] = target == shape.ignored;
    picks.data<std::int32_t>()[row] = target == shape.ignored ? 0 : target;
  }
  const Device device = logits.device();
  const Tensor skipped = ignored.to(device);
  const Tensor uncapped = cast(logits, wide(logits.dtype()));
  const Tensor wide_logits = shape.softcap > 0 ? softcap(uncapped, shape.softcap) : uncapped;
  const Tensor rows = masked_fill(reshape(wide_logits, Shape{shape.rows, shape.n}), skipped, 0);
  const Tensor log_p = log_softmax(rows);
  const double n = static_cast<double>(shape.n), counted = std::max(counts.item(), 1.0);
  const Tensor likelihood = affine(gather(log_p, 1, picks.to(device)), 1 - shape.smoothing, 0) +
                            affine(sum(log_p, {1}, true), shape.smoothing / n, 0);
  return affine(sum(masked_fill(likelihood, skipped, 0)), -1 / counted, 0);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  const kernels::CrossEntropy shape = checked_loss("cross_entropy", "logits", logits, targets, options);
  const Tensor counted = check_ids("cross_entropy", "targets", targets, shape.n, options.ignored);

  const DType type = wide(logits.dtype());
  const Device device = logits.device();
  const Tensor loss = Tensor::empty({}, type, device),
               statistics = Tensor::empty({shape.rows, 2}, type, device),
               losses = Tensor::empty({shape.rows}, DType::f64, device);
  dispatch("cross_entropy", operands(logits, wide(statistics), wide(loss)),
           [&](auto on, auto* x, auto* kept, auto* y) {
             double* each = losses.address<double>();
             kernels::cross_entropy_forward(on, shape, targets.address<std::int32_t>(), x, kept, each);
             kernels::mean_loss(on, shape.rows, each, counted.address<std::int32_t>(), y);
           });
  return record_fused(
      "cross_entropy", {logits}, {logits, targets, counted, statistics}, loss,
      [=](const Tensor& dy, const Gradients& into) {
        dispatch("cross_entropy", operands(logits, wide(statistics), wide(dy), into[0]),
                 [&](auto on, auto* x, auto* kept, auto* d, auto dx) {
                   kernels::cross_entropy_backward(on, shape, targets.address<std::int32_t>(),
                                                   counted.address<std::int32_t>(), x, kept, d, dx);
                 });
      },
      [=] { return composed(shape, logits, targets, counted); });
}

// The loss of a linear map, without storing all logits.

namespace {

constexpr const char* kHeadLoss = "linear_cross_entropy";
constexpr Index kChunkBytes = Index{64} << 20;  // beyond a CPU's cache, but little memory
// On a GPU each chunk reads and writes dweight: with 8 times the size that is a few percent of its products.
constexpr Index kGpuChunkBytes = Index{512} << 20;
constexpr Index kTileRows = 128;  // rows of a tile of products on a GPU

/// The distance of two rows of logits. On a GPU rows begin at multiples of 16 bytes; otherwise, as with a
/// vocabulary of 50257, products use slow kernels.
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

/// True if a recording tape will need the gradient of `x`.
bool is_tracked(const Tensor& x) { return tape_for(kHeadLoss, &x, 1) != nullptr; }

/// The products of a linear map of some rows on a device; rows of z begin `lead` numbers apart.
template <class On>
struct Products {
  On on;
  Index rows, out, in, lead;

  template <class T>
  void logits(const T* x, const T* weight, const T* bias, T* z) const {
    kernels::Gemm gemm = counted(rows, out, in, false, true);
    gemm.ldc = lead;
    kernels::linear_forward(on, gemm, x, weight, bias, {}, static_cast<T*>(nullptr), z);
  }
  template <class T>
  void dx(double scale, const T* dz, const T* weight, kernels::Write<T> to) const {
    kernels::Gemm gemm = counted(rows, in, out, false, false);
    gemm.lda = lead, gemm.scale = scale;
    kernels::gemm(on, gemm, dz, weight, to);
  }
  /// Computes dbias, the sum of dz without the scale.
  template <class T, class W = kernels::Wide<T>>
  void dweight(double scale, const T* dz, const T* x, kernels::Write<W> to, kernels::Write<W> dbias) const {
    if (to) {
      kernels::Gemm gemm = counted(out, in, rows, true, false);
      gemm.lda = lead, gemm.scale = scale;
      kernels::gemm(on, gemm, dz, x, to);
    }
    if (dbias) kernels::sum_rows(on, rows, out, lead, dz, dbias);
  }

 private:
  static kernels::Gemm counted(Index m, Index n, Index k, bool transpose_a, bool transpose_b) {
    count_flops(kHeadLoss, 2 * m * n * k);
    return kernels::dense_gemm(m, n, k, transpose_a, transpose_b);
  }
};

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            const LinearCrossEntropyOptions& options) {
  check_linear(kHeadLoss, x, weight, bias);
  require(options.chunk >= 0, kHeadLoss, "chunk must be at least 0", {{"chunk", options.chunk}});
  kernels::CrossEntropy shape = checked_loss(kHeadLoss, "x", x, targets, options);
  shape.n = weight.size(0), shape.lead = lead_of(shape.n, x);
  const Tensor counted = check_ids(kHeadLoss, "targets", targets, shape.n, options.ignored);
  const Index rows = shape.rows, out = shape.n, in = x.size(-1);
  const Index chunk = chunk_of(rows, shape.lead, options.chunk, x);

  // For a single chunk dz is kept if it is smaller than dweight: the products are then computed once dloss is
  // known. Not on a GPU, where the host passes products their factor, and would have to wait for it.
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
  dispatch(kHeadLoss,
           operands(x, weight, bias, z, wide(statistics), dx, wide(dweight), wide(dbias), wide(loss)),
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
               const Products<decltype(on)> products{on, part.rows, out, in, shape.lead};
               products.logits(px + from * in, pw, pb, pz);
               if (wants_x || wants_weight || wants_bias) {
                 kernels::cross_entropy_with_gradient(on, part, target, count, pz, kept, each + from);
               } else {
                 kernels::cross_entropy_forward(on, part, target, pz, kept, each + from);
               }
               if (pdx != nullptr) products.dx(1, pz, pw, kernels::Write<T>{pdx + from * in, false});
               products.dweight(1, pz, px + from * in, {pdw, from > 0}, {pdb, from > 0});
               from += chunk;
             } while (from < rows);
             kernels::mean_loss(on, rows, each, count, y);
           });

  const Tensor dz = keeps_dz ? z : Tensor();
  return record_fused(
      kHeadLoss, {x, weight, bias}, {x, weight, bias, dz, dx, dweight, dbias}, loss,
      [=](const Tensor& dloss, const Gradients& into) {
        const double scale = dz.defined() ? dloss.item() : 1;
        dispatch(kHeadLoss,
                 operands(x, weight, wide(dloss), dz, dx, wide(dweight), wide(dbias), into[0], wide(into[1]),
                          wide(into[2])),
                 [&](auto on, auto* px, auto* pw, auto* factor, auto* pz, auto* pdx, auto* pdw, auto* pdb,
                     auto to_x, auto to_weight, auto to_bias) {
                   const Products<decltype(on)> products{on, rows, out, in, shape.lead};
                   if (to_x && pz != nullptr) products.dx(scale, pz, pw, to_x);
                   if (to_x && pz == nullptr) kernels::scale_gradient(on, rows * in, factor, pdx, to_x);
                   if (pz != nullptr) products.dweight(scale, pz, px, to_weight, {});
                   if (to_weight && pz == nullptr)
                     kernels::scale_gradient(on, out * in, factor, pdw, to_weight);
                   if (to_bias) kernels::scale_gradient(on, out, factor, pdb, to_bias);
                 });
      },
      [=] { return cross_entropy(linear(x, weight, bias), targets, options); });
}

}  // namespace tapeformer
