#include <tapeformer/autograd/cuda/runtime.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt_functions.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>

#include <algorithm>
#include <tuple>

namespace tapeformer::cuda {
namespace {

constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;
constexpr std::uint32_t kMostAlignment = 256;  // the most that the library's heuristic needs
constexpr std::size_t kMostPlans = 1 << 16;    // about 1 KiB each; batches of texts have ever new sizes

void check(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(std::string("[cublasLt] ") + doing + " failed: " + blas().status_string(status));
}

cudaDataType_t library_type(DType type) {
  return type == DType::f64 ? CUDA_R_64F : type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

std::uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  const auto lowest = bits & (~bits + 1);
  return lowest == 0 ? kMostAlignment
                     : static_cast<std::uint32_t>(std::min<std::uintptr_t>(lowest, kMostAlignment));
}

struct Delete {
  void operator()(cublasLtMatmulDesc_t x) const { blas().product_destroy(x); }
  void operator()(cublasLtMatrixLayout_t x) const { blas().layout_destroy(x); }
  void operator()(cublasLtMatmulPreference_t x) const { blas().preference_destroy(x); }
};
template <class T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, Delete>;

Owned<cublasLtMatrixLayout_t> layout(DType type, Index rows, Index columns, Index lead, Index count,
                                     Index stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check(blas().layout_create(&made, library_type(type), static_cast<std::uint64_t>(rows),
                             static_cast<std::uint64_t>(columns), lead),
        "describing a matrix");
  Owned<cublasLtMatrixLayout_t> owned(made);
  const auto batch = static_cast<std::int32_t>(count);
  check(blas().layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
        "describing a stack of matrices");
  check(blas().layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
        "describing a stack of matrices");
  return owned;
}

cublasLtEpilogue_t library_epilogue(Epilogue epilogue, bool keeps_before) {
  switch (epilogue) {
    case Epilogue::none: break;
    case Epilogue::bias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::relu_bias: return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Epilogue::gelu_tanh_bias:
      return keeps_before ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

/// The addresses of a product.
struct Operands {
  const void *a, *b;
  void *c, *bias, *before;
};

/// The library reports what it cannot do in several ways, for some epilogues by calling them invalid.
bool is_refusal(cublasStatus_t status, const StridedProducts& p) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ||
         (status == CUBLAS_STATUS_INVALID_VALUE && p.epilogue != Epilogue::none);
}

/// A product in the library's description, and the algorithm that it chooses. The library's matrices are
/// column-major: read so, our a, b and c are transposed, and c^T = b^T a^T.
struct Plan {
  Plan(cublasLtHandle_t handle, const StridedProducts& p, cublasComputeType_t compute, const Operands& x) {
    cublasLtMatmulDesc_t made = nullptr;
    check(blas().product_create(&made, compute, library_type(wide(p.factors))), "describing a product");
    operation.reset(made);
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.epilogue != Epilogue::none) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, library_epilogue(p.epilogue, x.before != nullptr));
      if (x.before != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{p.ldc});
      set_addresses(p, x);
    }
    left =
        layout(p.factors, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb, p.count, p.stride_b);
    right =
        layout(p.factors, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda, p.count, p.stride_a);
    result = layout(p.result, p.n, p.m, p.ldc, p.count, p.stride_c);

    cublasLtMatmulPreference_t preference = nullptr;
    check(blas().preference_create(&preference), "choosing an algorithm");
    const Owned<cublasLtMatmulPreference_t> owned(preference);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
      check(blas().preference_set(preference, which, &value, sizeof value), "choosing an algorithm");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kMostWorkspace});
    // Sums of a split k must be added in one order: in the workspace, or k is not split.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(x.b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(x.a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(x.c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(x.c));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = blas().heuristic(handle, operation.get(), left.get(), right.get(),
                                                   result.get(), result.get(), preference, 1, &found, &count);
    if (is_refusal(status, p)) return;
    check(status, "choosing an algorithm");
    if (count > 0 && found.state == CUBLAS_STATUS_SUCCESS) algorithm = found;
  }

  /// The epilogue's addresses, which the library needs before it chooses, and before each product.
  void set_addresses(const StridedProducts& p, const Operands& x) const {
    if (p.epilogue == Epilogue::none) return;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, x.bias);
    if (x.before != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, x.before);
  }

  /// Queues the product after set_addresses().
  cublasStatus_t run(cublasLtHandle_t handle, const StridedProducts& p, const Operands& x, void* workspace,
                     cudaStream_t stream) const {
    const auto run_with = [&](const auto& alpha, const auto& beta) {
      return blas().matmul(handle, operation.get(), &alpha, x.b, left.get(), x.a, right.get(), &beta, x.c,
                           result.get(), x.c, result.get(), &algorithm->algo, workspace,
                           algorithm->workspaceSize, stream);
    };
    return p.factors == DType::f64 ? run_with(p.scale, p.add ? 1.0 : 0.0)
                                   : run_with(static_cast<float>(p.scale), p.add ? 1.0f : 0.0f);
  }

  Owned<cublasLtMatmulDesc_t> operation;
  Owned<cublasLtMatrixLayout_t> left, right, result;
  std::optional<cublasLtMatmulHeuristicResult_t> algorithm;  // none if the library cannot compute the product

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t which, const Value& value) const {
    check(blas().product_set(operation.get(), which, &value, sizeof value), "describing a product");
  }
};

/// The inputs of the library's choice.
auto key_of(const StridedProducts& p, cublasComputeType_t compute, const Operands& x) {
  return std::make_tuple(p.factors, p.result, p.m, p.n, p.k, p.transpose_a, p.transpose_b, p.lda, p.ldb,
                         p.ldc, p.count, p.stride_a, p.stride_b, p.stride_c, p.epilogue, x.before != nullptr,
                         compute, alignment_of(x.a), alignment_of(x.b), alignment_of(x.c),
                         alignment_of(x.bias), alignment_of(x.before));
}
using Key = decltype(key_of({}, {}, {}));

/// The library's handle for one device, and plans for the products so far.
struct Library {
  Library() { check(blas().create(&handle), "starting the library"); }
  Plan& plan(const StridedProducts& p, cublasComputeType_t compute, const Operands& x) {
    if (plans.size() >= kMostPlans) plans.clear();
    return plans.try_emplace(key_of(p, compute, x), handle, p, compute, x).first->second;
  }

  cublasLtHandle_t handle = nullptr;
  std::mutex mutex;  // held while a plan is in use: it stores the addresses of one product
  std::map<Key, Plan> plans;
};

Library& library_of(int device) {
  static auto* const libraries = new std::map<int, Library>;  // outlives every static tensor
  static std::mutex* const mutex = new std::mutex;
  const std::lock_guard<std::mutex> lock(*mutex);
  return (*libraries)[device];
}

cublasComputeType_t compute_type(DType factors) {
  if (factors == DType::f64) return CUBLAS_COMPUTE_64F;
  const bool tf32 = factors == DType::f32 && matmul_precision() == MatmulPrecision::tf32;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

}  // namespace

bool multiply(int device, const StridedProducts& p, const void* a, const void* b, void* c, void* bias,
              void* before) {
  const cudaStream_t stream = stream_of(device);
  const Operands x{a, b, c, bias, before};
  Library& library = library_of(device);
  const std::lock_guard<std::mutex> lock(library.mutex);
  Plan& plan = library.plan(p, compute_type(p.factors), x);
  if (!plan.algorithm) return false;
  plan.set_addresses(p, x);
  const kernels::Scratch<char> workspace(kernels::Cuda{device},
                                         static_cast<Index>(plan.algorithm->workspaceSize));
  const cublasStatus_t status = plan.run(library.handle, p, x, workspace.data(), stream);
  if (is_refusal(status, p)) {
    plan.algorithm.reset();
    return false;
  }
  check(status, "queuing a product");
  wait_if_host_readable(stream, "running a matrix product");
  return true;
}

}  // namespace tapeformer::cuda
