#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/kernels/cuda/tile_product.h>

namespace tapeformer::kernels {
namespace {

/// c = scale a b (+ c) for sizes that the library refuses: one block for a tile of c.
template <class T, class C>
__global__ void plain_product_kernel(cuda::StridedProducts p, const T* a, const T* b, C* c) {
  using W = Wide<T>;
  const Index across = tiles_of(p.n, kProductTile), down = tiles_of(p.m, kProductTile);
  for (Index block = blockIdx.x; block < p.count * down * across; block += gridDim.x) {
    const Index stack = block / (down * across), in_stack = block % (down * across);
    const Index row = in_stack / across * kProductTile, column = in_stack % across * kProductTile;
    const T *pa = a + stack * p.stride_a, *pb = b + stack * p.stride_b;
    const W sum = tile_product<W>(
        0, p.k,
        [&](int i, Index k) {
          const Index m = row + i;
          return m < p.m ? static_cast<W>(pa[p.transpose_a ? k * p.lda + m : m * p.lda + k]) : W(0);
        },
        [&](Index k, int j) {
          const Index n = column + j;
          return n < p.n ? static_cast<W>(pb[p.transpose_b ? n * p.ldb + k : k * p.ldb + n]) : W(0);
        });
    const Index own_row = row + row_in_tile(), own_column = column + column_in_tile();
    if (own_row >= p.m || own_column >= p.n) continue;
    const Write<C> to{c + stack * p.stride_c + own_row * p.ldc, p.add};
    to.put(own_column, static_cast<W>(p.scale) * sum);
  }
}

/// The axis of the batch that the library's strided product takes; 0 if there is none.
int longest_axis(const Broadcast& batch) {
  int longest = 0;
  for (int axis = 1; axis < batch.axes; ++axis) {
    if (batch.sizes[axis] > batch.sizes[longest]) longest = axis;
  }
  return longest;
}

/// Axes along which b repeats, and a and c are contiguous with their rows, become rows.
Gemm with_more_rows(Gemm s) {
  while (s.batch.axes > 0 && !s.transpose_a) {
    Broadcast& batch = s.batch;
    int found = -1;
    for (int axis = 0; axis < batch.axes; ++axis) {
      if (batch.strides_b[axis] == 0 && batch.strides_a[axis] == s.m * s.lda &&
          batch.strides_c[axis] == s.m * s.ldc)
        found = axis;
    }
    if (found < 0) break;
    s.m *= batch.sizes[found];
    --batch.axes;
    for (int axis = found; axis < batch.axes; ++axis) {
      batch.sizes[axis] = batch.sizes[axis + 1];
      batch.strides_a[axis] = batch.strides_a[axis + 1];
      batch.strides_b[axis] = batch.strides_b[axis + 1];
      batch.strides_c[axis] = batch.strides_c[axis + 1];
    }
  }
  return s;
}

}  // namespace

template <class T, class C>
void gemm(Cuda on, const Gemm& shape, const T* a, const T* b, Write<C> c) {
  if (shape.m == 0 || shape.n == 0 || shape.batch.elements() == 0) return;
  const Gemm s = with_more_rows(shape);
  cuda::StridedProducts products = cuda::described<T>(s, c);
  const int axis = longest_axis(s.batch);
  if (s.batch.axes > 0) {
    products.count = s.batch.sizes[axis];
    products.stride_a = s.batch.strides_a[axis];
    products.stride_b = s.batch.strides_b[axis];
    products.stride_c = s.batch.strides_c[axis];
  }
  Broadcast others = s.batch;
  others.sizes[axis] = 1;
  const Index count = others.elements();
  for (Index i = 0; i < count; ++i) {
    const Broadcast::Offsets at = others.offsets(i, others.axes);
    // An empty k has nothing to read, and no memory.
    const T *pa = s.k > 0 ? a + at.a : nullptr, *pb = s.k > 0 ? b + at.b : nullptr;
    C* pc = c.to + at.c;
    if (s.k > 0 && cuda::multiply(on.device, products, pa, pb, pc)) continue;
    const Index blocks = products.count * tiles_of(s.m, kProductTile) * tiles_of(s.n, kProductTile);
    launch(on, "plain_product", plain_product_kernel<T, C>, std::min<Index>(blocks, 65536), products, pa, pb,
           pc);
  }
}

template void gemm(Cuda, const Gemm&, const float*, const float*, Write<float>);
template void gemm(Cuda, const Gemm&, const double*, const double*, Write<double>);
template void gemm(Cuda, const Gemm&, const BFloat16*, const BFloat16*, Write<BFloat16>);
template void gemm(Cuda, const Gemm&, const BFloat16*, const BFloat16*, Write<float>);

}  // namespace tapeformer::kernels
