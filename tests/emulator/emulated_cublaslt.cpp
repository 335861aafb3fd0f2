#include <emulated_cuda.h>
#include <tapeformer/autograd/kernels/cuda.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/kernels/cuda/runtime.h>
#include <tapeformer/autograd/kernels/matmul.h>

#include <algorithm>
#include <cstring>
#include <vector>

/// What cuBLASLt does for the library, by the CPU's products.
namespace tapeformer::cuda {
namespace {

/// To the nearest of the numbers with 10 bits after the point, ties to even.
float rounded_to_tf32(float x) {
  std::uint32_t word;
  std::memcpy(&word, &x, sizeof word);
  if ((word & 0x7F800000u) != 0x7F800000u) word = (word + 0xFFFu + (word >> 13 & 1u)) & ~0x1FFFu;
  std::memcpy(&x, &word, sizeof x);
  return x;
}

/// Elements from the first to the last of a matrix.
Index extent(Index rows, Index columns, Index row_stride) { return (rows - 1) * row_stride + columns; }

template <class T, class C, class Prepare>
void products(const StridedProducts& p, const T* a, const T* b, C* c, const Prepare& prepared) {
  using W = kernels::Wide<T>;
  const Index extent_a = p.transpose_a ? extent(p.k, p.m, p.lda) : extent(p.m, p.k, p.lda);
  const Index extent_b = p.transpose_b ? extent(p.n, p.k, p.ldb) : extent(p.k, p.n, p.ldb);
  kernels::Gemm gemm;
  gemm.m = p.m, gemm.n = p.n, gemm.k = p.k;
  gemm.transpose_a = p.transpose_a, gemm.transpose_b = p.transpose_b;
  gemm.lda = p.lda, gemm.ldb = p.ldb, gemm.ldc = p.n;
  gemm.scale = p.scale;
  std::vector<W> wide_a(static_cast<std::size_t>(extent_a)), wide_b(static_cast<std::size_t>(extent_b));
  std::vector<W> wide_c(static_cast<std::size_t>(p.m * p.n));
  for (Index i = 0; i < p.count; ++i) {
    std::transform(a + i * p.stride_a, a + i * p.stride_a + extent_a, wide_a.begin(), prepared);
    std::transform(b + i * p.stride_b, b + i * p.stride_b + extent_b, wide_b.begin(), prepared);
    kernels::gemm(kernels::Cpu{}, gemm, wide_a.data(), wide_b.data(),
                  kernels::Write<W>{wide_c.data(), false});
    for (Index row = 0; row < p.m; ++row) {
      const kernels::Write<C> to{c + i * p.stride_c + row * p.ldc, p.add};
      for (Index column = 0; column < p.n; ++column) {
        to.put(column, wide_c[static_cast<std::size_t>(row * p.n + column)]);
      }
    }
  }
}

template <class T>
void require(const StridedProducts& p, cudaStream_t stream, const T* x, Index rows, Index columns, Index lead,
             Index stride) {
  const Index elements = (p.count - 1) * stride + extent(rows, columns, lead);
  emulator::require_device_memory("a matrix product", stream, x,
                                  static_cast<std::size_t>(elements) * sizeof(T));
}

template <class T, class C, class Prepare>
void run(int device, const StridedProducts& p, const void* a, const void* b, void* c,
         const Prepare& prepared) {
  const cudaStream_t stream = kernels::stream_of({device});
  emulator::finish(stream);
  const auto* pa = static_cast<const T*>(a);
  const auto* pb = static_cast<const T*>(b);
  auto* pc = static_cast<C*>(c);
  require(p, stream, pa, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda, p.stride_a);
  require(p, stream, pb, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb, p.stride_b);
  require(p, stream, pc, p.m, p.n, p.ldc, p.stride_c);
  products(p, pa, pb, pc, prepared);
}

}  // namespace

void multiply(int device, const StridedProducts& p, const void* a, const void* b, void* c) {
  const auto exact = [](auto x) { return x; };
  const auto widened = [](BFloat16 x) { return static_cast<float>(x); };
  if (p.factors == DType::f64) return run<double, double>(device, p, a, b, c, exact);
  if (p.factors == DType::f32) {
    return matmul_precision() == MatmulPrecision::tf32
               ? run<float, float>(device, p, a, b, c, rounded_to_tf32)
               : run<float, float>(device, p, a, b, c, exact);
  }
  if (p.result == DType::f32) return run<BFloat16, float>(device, p, a, b, c, widened);
  run<BFloat16, BFloat16>(device, p, a, b, c, widened);
}

}  // namespace tapeformer::cuda
