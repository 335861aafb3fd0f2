#include <libraries/emulated_cublaslt.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt_functions.h>
#include <tapeformer/autograd/kernels/matmul.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

/// The part of cuBLASLt that the library uses, computed by the CPU.

struct EmulatedProduct {
  cublasComputeType_t compute;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void *bias = nullptr, *before = nullptr;
  std::int64_t lead_of_before = 0;
};
struct EmulatedLayout {
  cudaDataType_t type;
  std::int64_t rows, columns, lead;
  std::int32_t count = 1;
  std::int64_t stride = 0;
};
struct EmulatedPreference {
  std::uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
};

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
/// leading dimensions of 16 bytes; products of bf16 pairs of numbers. `addresses` are all of them or their
/// alignments, combined by "or".
bool is_possible(const StridedProducts& p, std::uintptr_t addresses, bool has_bias) {
  const auto fits = [&](std::size_t bytes) {
    const auto size = static_cast<std::uintptr_t>(bytes_of(p.factors)),
               result_size = static_cast<std::uintptr_t>(bytes_of(p.result));
    std::uintptr_t bits = addresses;
    for (const Index size_in_memory : {p.lda, p.ldb, p.stride_a, p.stride_b})
      bits |= static_cast<std::uintptr_t>(size_in_memory) * size;
    for (const Index size_in_memory : {p.ldc, p.stride_c})
      bits |= static_cast<std::uintptr_t>(size_in_memory) * result_size;
    return bits % bytes == 0;
  };
  if (p.epilogue == Epilogue::none) return p.factors != DType::bf16 || fits(4);
  if (p.factors == DType::f64 || p.count != 1) return false;
  return has_bias && fits(16);
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
    for (Index row = 0; row < p.m; ++row) {
      W* const own = wide_c.data() + row * p.n;
      if (p.epilogue != Epilogue::none)
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

struct Addresses {
  const void *a, *b;
  void *c, *bias, *before;
};

template <class T, class C, class Prepare>
void run(cudaStream_t stream, const StridedProducts& p, const Addresses& x, const Prepare& prepared) {
  const auto *pa = static_cast<const T*>(x.a), *pb = static_cast<const T*>(x.b);
  auto *pc = static_cast<C*>(x.c), *bias = static_cast<C*>(x.bias), *before = static_cast<C*>(x.before);
  emulator::perform(stream, [=] {
    require(p, stream, pa, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda, p.stride_a);
    require(p, stream, pb, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb, p.stride_b);
    require(p, stream, pc, p.m, p.n, p.ldc, p.stride_c);
    require(p, stream, bias, 1, p.n, p.n, 0);
    require(p, stream, before, p.m, p.n, p.ldc, 0);
    products(p, pa, pb, pc, bias, before, prepared);
    ++emulator::microseconds;
  });
}

DType type_of(cudaDataType_t type) {
  return type == CUDA_R_64F ? DType::f64 : type == CUDA_R_16BF ? DType::bf16 : DType::f32;
}

Epilogue epilogue_of(cublasLtEpilogue_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT: return Epilogue::none;
    case CUBLASLT_EPILOGUE_BIAS: return Epilogue::bias;
    case CUBLASLT_EPILOGUE_RELU_BIAS: return Epilogue::relu_bias;
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS: return Epilogue::gelu_tanh_bias;
  }
  return Epilogue::none;
}

/// The row-major product that a column-major one is: the library's A is our b.
StridedProducts row_major(const EmulatedProduct& product, const EmulatedLayout& left,
                          const EmulatedLayout& right, const EmulatedLayout& result) {
  StridedProducts p;
  p.factors = type_of(left.type), p.result = type_of(result.type);
  p.transpose_a = product.transpose_b == CUBLAS_OP_T, p.transpose_b = product.transpose_a == CUBLAS_OP_T;
  p.m = result.columns, p.n = result.rows, p.k = p.transpose_b ? left.rows : left.columns;
  p.lda = right.lead, p.ldb = left.lead, p.ldc = result.lead;
  p.count = result.count;
  p.stride_a = right.stride, p.stride_b = left.stride, p.stride_c = result.stride;
  p.epilogue = epilogue_of(product.epilogue);
  return p;
}

template <class T>
cublasStatus_t set(T& to, const void* value, std::size_t bytes) {
  if (bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, sizeof to);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t destroy(T* x) {
  delete x;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const BlasFunctions& blas() {
  static const BlasFunctions functions{&cublasLtCreate,
                                       &cublasLtGetStatusString,
                                       &cublasLtMatmul,
                                       &cublasLtMatmulAlgoGetHeuristic,
                                       &cublasLtMatmulDescCreate,
                                       &cublasLtMatmulDescSetAttribute,
                                       &cublasLtMatmulDescDestroy,
                                       &cublasLtMatrixLayoutCreate,
                                       &cublasLtMatrixLayoutSetAttribute,
                                       &cublasLtMatrixLayoutDestroy,
                                       &cublasLtMatmulPreferenceCreate,
                                       &cublasLtMatmulPreferenceSetAttribute,
                                       &cublasLtMatmulPreferenceDestroy};
  return functions;
}

}  // namespace tapeformer::cuda

using namespace tapeformer;
using namespace tapeformer::cuda;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = &emulator::matmul_library();
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown";
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t of_a, const void* b,
                              cublasLtMatrixLayout_t of_b, const void* beta, const void*,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t of_d,
                              const cublasLtMatmulAlgo_t*, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  const emulator::MatmulLibrary& library = emulator::matmul_library();
  if (library.product != CUBLAS_STATUS_SUCCESS) return library.product;
  if (workspace_bytes < library.workspace || (library.workspace > 0 && workspace == nullptr))
    return CUBLAS_STATUS_INVALID_VALUE;
  emulator::require_device_memory("a matrix product", stream, workspace, workspace_bytes);
  StridedProducts p = row_major(*product, *of_a, *of_b, *of_d);
  const bool wide = p.factors == DType::f64;
  p.scale = wide ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  p.add = (wide ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta)) != 0;
  const bool keeps_before = product->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  const Addresses x{b, a, d, p.epilogue == Epilogue::none ? nullptr : product->bias,
                    keeps_before ? product->before : nullptr};
  std::uintptr_t bits = 0;
  for (const void* address : {x.a, x.b, static_cast<const void*>(x.c), static_cast<const void*>(x.bias),
                              static_cast<const void*>(x.before)})
    bits |= reinterpret_cast<std::uintptr_t>(address);
  if (!is_possible(p, bits, x.bias != nullptr) || (keeps_before && product->lead_of_before != p.ldc))
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto exact = [](auto value) { return value; };
  const auto widened = [](BFloat16 value) { return static_cast<float>(value); };
  if (wide)
    run<double, double>(stream, p, x, exact);
  else if (p.factors == DType::f32 && product->compute == CUBLAS_COMPUTE_32F_FAST_TF32)
    run<float, float>(stream, p, x, rounded_to_tf32);
  else if (p.factors == DType::f32)
    run<float, float>(stream, p, x, exact);
  else if (p.result == DType::f32)
    run<BFloat16, float>(stream, p, x, widened);
  else
    run<BFloat16, BFloat16>(stream, p, x, widened);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  const emulator::MatmulLibrary& library = emulator::matmul_library();
  if (library.heuristic != CUBLAS_STATUS_SUCCESS) return library.heuristic;
  const std::uintptr_t bits = preference->align_a | preference->align_b | preference->align_c |
                              preference->align_d | reinterpret_cast<std::uintptr_t>(product->bias) |
                              reinterpret_cast<std::uintptr_t>(product->before);
  *count = 0;
  if (!is_possible(row_major(*product, *a, *b, *d), bits, product->bias != nullptr))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  *count = 1;
  *found = {{}, library.workspace, CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t) {
  *product = new EmulatedProduct{compute};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t which, const void* value,
                                              std::size_t bytes) {
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(product->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(product->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(product->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(product->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return set(product->before, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return set(product->lead_of_before, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) { return destroy(product); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns, std::int64_t lead) {
  *layout =
      new EmulatedLayout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), lead};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t which, const void* value,
                                                std::size_t bytes) {
  return which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? set(layout->count, value, bytes)
                                                     : set(layout->stride, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy(layout); }

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new EmulatedPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* value, std::size_t bytes) {
  switch (which) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(preference->align_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(preference->align_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(preference->align_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(preference->align_d, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}
