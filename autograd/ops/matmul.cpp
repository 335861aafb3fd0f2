#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/kernels/reduce.h>
#include <tapeformer/autograd/ops/broadcast.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// Sizes and strides of a stack of matrices in a product.
struct Stack {
  Shape batch;                           // leading axes, the head axis last when by_head
  Index batch_strides[Shape::kMaxRank];  // in elements
  Index rows = 0, columns = 0;           // as stored, before transposing
  Index row_stride = 0;
};

Stack stack_of(const char* op, const Shape& shape, bool by_head) {
  const int rank = shape.rank();
  const int matrix_axes = by_head ? 3 : 2;
  require(rank >= matrix_axes, op, "a factor must have at least two axes, by head three", {{"factor", shape}},
          "reshape");
  Stack stack;
  for (int axis = 0; axis < rank - matrix_axes; ++axis) {
    stack.batch_strides[axis] = shape.elements(axis + 1, rank);
    stack.batch.append(shape[axis]);
  }
  stack.columns = shape[-1];
  stack.rows = shape[rank - matrix_axes];
  stack.row_stride = shape.elements(rank - matrix_axes + 1, rank);
  if (by_head) {
    stack.batch_strides[stack.batch.rank()] = stack.columns;
    stack.batch.append(shape[-2]);
  }
  return stack;
}

/// The strides of `stack`'s batch axes broadcast to `batch`.
void aligned_strides(const Shape& batch, const Stack& stack, Index* strides) {
  const int lead = batch.rank() - stack.batch.rank();
  for (int axis = 0; axis < batch.rank(); ++axis) {
    const bool repeats = axis < lead || stack.batch[axis - lead] == 1;
    strides[axis] = repeats ? 0 : stack.batch_strides[axis - lead];
  }
}

std::string describe(const char* name, const Factor& factor) {
  return format("{}={}{}{}", name, factor.x.describe(), factor.by_head ? " by head" : "",
                factor.transposed ? " transposed" : "");
}

/// dz [rows, Out] -> dx = dz weight, dweight = dz^T x.
void linear_backward(const Tensor& x, const Tensor& weight, const Tensor& dz, const Gradients& into) {
  const Index out = weight.size(0), in = weight.size(1), rows = x.shape().elements(0, x.rank() - 1);
  if (into[0]) {
    count_flops("linear", 2 * rows * out * in);
    dispatch("linear", operands(dz, weight, into[0]), [&](auto on, auto* pdz, auto* pw, auto to) {
      kernels::gemm(on, kernels::dense_gemm(rows, in, out, false, false), pdz, pw, to);
    });
  }
  if (into[1]) {
    count_flops("linear", 2 * rows * out * in);
    dispatch("linear", operands(dz, x, wide(into[1])), [&](auto on, auto* pdz, auto* px, auto to) {
      kernels::gemm(on, kernels::dense_gemm(out, in, rows, true, false), pdz, px, to);
    });
  }
}

}  // namespace

Factor transposed(Factor factor) {
  factor.transposed = !factor.transposed;
  return factor;
}

Factor by_head(Factor factor) {
  factor.by_head = true;
  return factor;
}

Tensor matmul(const Factor& a, const Factor& b, double scale, bool output_by_head) {
  const Stack stack_a = stack_of("matmul", a.x.shape(), a.by_head),
              stack_b = stack_of("matmul", b.x.shape(), b.by_head);
  kernels::Gemm gemm;
  gemm.m = a.transposed ? stack_a.columns : stack_a.rows;
  gemm.k = a.transposed ? stack_a.rows : stack_a.columns;
  gemm.n = b.transposed ? stack_b.rows : stack_b.columns;
  const Index inner_b = b.transposed ? stack_b.columns : stack_b.rows;
  if (gemm.k != inner_b) {
    throw ShapeError(format("[matmul] inner sizes must match; got {}, {} ({} != {}); try transposed(b)",
                            describe("a", a), describe("b", b), gemm.k, inner_b));
  }
  if (b.x.rank() == 2 && a.x.rank() > 2 && !a.by_head && !a.transposed && !output_by_head && gemm.k > 0) {
    // A large product is faster than a stack of small ones, and db needs no sum over the stack.
    Shape shape = a.x.shape();
    shape.set(-1, gemm.n);
    return reshape(matmul(reshape(a.x, {-1, gemm.k}), b, scale), shape);
  }
  gemm.transpose_a = a.transposed, gemm.transpose_b = b.transposed;
  gemm.scale = scale;

  const Shape batch = broadcast_shapes("matmul", stack_a.batch, stack_b.batch);
  Shape shape = batch;
  if (output_by_head) {
    if (batch.rank() == 0)
      throw ShapeError("[matmul] an output by head needs a head axis; got " + describe("a", a));
    shape.set(-1, gemm.m);
    shape.append(batch[-1]);
  } else {
    shape.append(gemm.m);
  }
  shape.append(gemm.n);
  const Stack stack_y = stack_of("matmul", shape, output_by_head);
  gemm.lda = std::max<Index>(stack_a.row_stride, 1);
  gemm.ldb = std::max<Index>(stack_b.row_stride, 1);
  gemm.ldc = std::max<Index>(stack_y.row_stride, 1);
  gemm.batch.axes = batch.rank();
  for (int axis = 0; axis < batch.rank(); ++axis) gemm.batch.sizes[axis] = batch[axis];
  aligned_strides(batch, stack_a, gemm.batch.strides_a);
  aligned_strides(batch, stack_b, gemm.batch.strides_b);
  aligned_strides(batch, stack_y, gemm.batch.strides_c);
  gemm.batch = merged(gemm.batch);
  count_flops("matmul", 2 * batch.elements() * gemm.m * gemm.n * gemm.k);

  const Tensor y = Tensor::empty(shape, a.x.dtype(), a.x.device());
  dispatch("matmul", operands(a.x, b.x, y), [&](auto on, auto* pa, auto* pb, auto* py) {
    kernels::gemm(on, gemm, pa, pb, kernels::Write<std::remove_pointer_t<decltype(py)>>{py, false});
  });
  return record("matmul", {a.x, b.x}, {a.x, b.x}, y,
                [a, b, scale, output_by_head](const Tensor& gradient, const Gradients& into) {
                  const Factor dy = output_by_head ? by_head(gradient) : Factor(gradient);
                  if (into[0]) {
                    into[0] += a.transposed ? matmul(b, transposed(dy), scale, a.by_head)
                                            : matmul(dy, transposed(b), scale, a.by_head);
                  }
                  if (into[1]) {
                    into[1] += b.transposed ? matmul(transposed(dy), a, scale, b.by_head)
                                            : matmul(transposed(a), dy, scale, b.by_head);
                  }
                });
}

void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require(weight.rank() == 2 && x.rank() > 0 && x.size(-1) == weight.size(1) &&
              (!bias.defined() || bias.shape() == Shape{weight.size(0)}),
          op, "x [..., In], weight [Out, In] and bias [Out] must fit",
          {{"x", x}, {"weight", weight}, {"bias", bias}});
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, std::optional<Unary> activation) {
  check_linear("linear", x, weight, bias);
  Shape shape = x.shape();
  shape.set(-1, weight.size(0));
  const Index out = weight.size(0), in = weight.size(1), rows = x.shape().elements(0, x.rank() - 1);
  const kernels::Gemm gemm = kernels::dense_gemm(rows, out, in, false, true);
  count_flops("linear", 2 * rows * out * in);

  const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  const Tensor inputs[] = {x, weight, bias};
  const bool derives =
      activation && !kernels::saves_output(*activation) && tape_for("linear", inputs, 3) != nullptr;
  const Tensor kept = derives ? Tensor::empty_like(y) : Tensor();
  dispatch("linear", operands(x, weight, bias, kept, y),
           [&](auto on, auto* px, auto* pw, auto* pb, auto* saved, auto* py) {
             kernels::linear_forward(on, gemm, px, pw, pb, activation, saved, py);
           });

  const Tensor saved = activation ? (derives ? kept : y) : Tensor();
  return record_fused(
      "linear", {x, weight, bias}, {x, weight, saved}, y,
      [x, weight, saved, activation, rows, out](const Tensor& dy, const Gradients& into) {
        Tensor dz = dy;
        if (activation) {
          dz = Tensor::empty_like(dy);
          dispatch("linear", operands(saved, dy, dz, wide(into[2])),
                   [&](auto on, auto* s, auto* from, auto* to, auto dbias) {
                     kernels::linear_activation_backward(on, *activation, rows, out, s, from, to, dbias);
                   });
        } else if (into[2]) {
          dispatch("linear", operands(dy, wide(into[2])), [&](auto on, auto* from, auto dbias) {
            kernels::sum_rows(on, rows, out, out, from, dbias);
          });
        }
        linear_backward(x, weight, dz, into);
      },
      [x, weight, bias, activation, rows, in, shape] {
        Tensor z = reshape(matmul(reshape(x, {rows, in}), transposed(weight)), shape);
        if (bias.defined()) z = z + bias;
        return activation ? unary(*activation, z) : z;
      });
}

}  // namespace tapeformer
