#include <emulated_cuda.h>
#include <tapeformer/autograd/cuda/runtime.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/kernels/matmul.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

/// The part of cuBLASLt that the library uses, computed by the CPU.
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

/// As choosy as any version of the library is known to be: an epilogue wants f32 or bf16, addresses and
/// leading dimensions of 16 bytes; products of bf16 pairs of numbers. What the library calls invalid is.
bool is_possible(const StridedProducts& p, const void* a, const void* b, const void* c, const void* bias,
                 const void* before) {
  const auto fits = [&](std::size_t bytes) {
    const auto size = static_cast<std::uintptr_t>(bytes_of(p.factors)),
               result_size = static_cast<std::uintptr_t>(bytes_of(p.result));
    std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b) |
                          reinterpret_cast<std::uintptr_t>(c) | reinterpret_cast<std::uintptr_t>(bias) |
                          reinterpret_cast<std::uintptr_t>(before);
    for (const Index size_in_memory : {p.lda, p.ldb, p.stride_a, p.stride_b})
      bits |= static_cast<std::uintptr_t>(size_in_memory) * size;
    for (const Index size_in_memory : {p.ldc, p.stride_c})
      bits |= static_cast<std::uintptr_t>(size_in_memory) * result_size;
    return bits % bytes == 0;
  };
  if (p.epilogue == Epilogue::none) return p.factors != DType::bf16 || fits(4);
  if (p.factors == DType::f64 || p.count != 1) return false;
  if (p.epilogue == Epilogue::bias_gradient && !p.transpose_a) return false;
  return bias != nullptr && fits(16);
}

/// Elements from the first to the last of a matrix.
Index extent(Index rows, Index columns, Index row_stride) { return (rows - 1) * row_stride + columns; }

/// The numbers of a row before they are written.
template <class C, class W>
void finish_row(const StridedProducts& p, const C* bias, C* before, W* row) {
  for (Index i = 0; i < p.n; ++i) {
    row[i] += static_cast<W>(bias[i]);
    if (p.epilogue == Epilogue::relu_bias) row[i] = std::fmax(row[i], W(0));
    if (p.epilogue != Epilogue::gelu_tanh_bias) continue;
    if (before != nullptr) before[i] = static_cast<C>(row[i]);
    kernels::unary_forward(kernels::Cpu{}, kernels::Unary::gelu_tanh, 1, row + i, row + i);
  }
}

template <class T, class C>
void sum_of_rows(const StridedProducts& p, const T* a, C* bias) {
  for (Index i = 0; i < p.m; ++i) {
    double sum = 0;
    for (Index k = 0; k < p.k; ++k) sum += static_cast<double>(a[k * p.lda + i]);
    bias[i] = static_cast<C>(sum);
  }
}

template <class T, class C, class Prepare>
void products(const StridedProducts& p, const T* a, const T* b, C* c, C* bias, C* before,
              const Prepare& prepared) {
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
    if (p.epilogue == Epilogue::bias_gradient) sum_of_rows(p, a, bias);
    for (Index row = 0; row < p.m; ++row) {
      W* const own = wide_c.data() + row * p.n;
      if (p.epilogue != Epilogue::none && p.epilogue != Epilogue::bias_gradient)
        finish_row(p, bias, before == nullptr ? nullptr : before + row * p.ldc, own);
      const kernels::Write<C> to{c + i * p.stride_c + row * p.ldc, p.add};
      for (Index column = 0; column < p.n; ++column) {
        to.put(column, own[column]);
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
void run(int device, const StridedProducts& p, const void* a, const void* b, void* c, void* bias,
         void* before, const Prepare& prepared) {
  const cudaStream_t stream = stream_of(device);
  const auto* pa = static_cast<const T*>(a);
  const auto* pb = static_cast<const T*>(b);
  auto* pc = static_cast<C*>(c);
  emulator::perform(stream, [=] {
    require(p, stream, pa, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda, p.stride_a);
    require(p, stream, pb, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb, p.stride_b);
    require(p, stream, pc, p.m, p.n, p.ldc, p.stride_c);
    products(p, pa, pb, pc, static_cast<C*>(bias), static_cast<C*>(before), prepared);
  });
}

}  // namespace

bool multiply(int device, const StridedProducts& p, const void* a, const void* b, void* c, void* bias,
              void* before) {
  if (!is_possible(p, a, b, c, bias, before)) return false;
  const auto exact = [](auto x) { return x; };
  const auto widened = [](BFloat16 x) { return static_cast<float>(x); };
  if (p.factors == DType::f64) {
    run<double, double>(device, p, a, b, c, bias, before, exact);
  } else if (p.factors == DType::f32 && matmul_precision() == MatmulPrecision::tf32) {
    run<float, float>(device, p, a, b, c, bias, before, rounded_to_tf32);
  } else if (p.factors == DType::f32) {
    run<float, float>(device, p, a, b, c, bias, before, exact);
  } else if (p.result == DType::f32) {
    run<BFloat16, float>(device, p, a, b, c, bias, before, widened);
  } else {
    run<BFloat16, BFloat16>(device, p, a, b, c, bias, before, widened);
  }
  return true;
}

}  // namespace tapeformer::cuda
