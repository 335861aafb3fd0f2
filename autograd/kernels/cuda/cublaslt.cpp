#include <cublasLt.h>
#include <dlfcn.h>
#include <tapeformer/autograd/cuda/runtime.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

namespace tapeformer::cuda {
namespace {

constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;
constexpr std::uint32_t kMostAlignment = 256;  // the most that the library's heuristic needs

/// A function of a loaded library, as a pointer of any type.
struct Symbol {
  void* address;
  template <class F>
  operator F*() const {
    return reinterpret_cast<F*>(address);
  }
};

void* loaded_library() {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  for (const std::string& path :
       {name, TAPEFORMER_CUDA_LIBRARIES "/" + name, "/usr/local/cuda/lib64/" + name}) {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw DeviceError("[cublasLt] matrix products need " + name + ", which cannot be loaded: " + dlerror() +
                    "; try LD_LIBRARY_PATH=(the folder it lies in)");
}

/// The library's functions. It is loaded for the first product: it has half a gigabyte, and programs that use
/// only the CPU would start a quarter of a second later.
struct Functions {
  void* library = loaded_library();
  decltype(&cublasLtCreate) create = find("cublasLtCreate");
  decltype(&cublasLtGetStatusString) status_string = find("cublasLtGetStatusString");
  decltype(&cublasLtMatmul) matmul = find("cublasLtMatmul");
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = find("cublasLtMatmulAlgoGetHeuristic");
  decltype(&cublasLtMatmulDescCreate) product_create = find("cublasLtMatmulDescCreate");
  decltype(&cublasLtMatmulDescSetAttribute) product_set = find("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatmulDescDestroy) product_destroy = find("cublasLtMatmulDescDestroy");
  decltype(&cublasLtMatrixLayoutCreate) layout_create = find("cublasLtMatrixLayoutCreate");
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = find("cublasLtMatrixLayoutSetAttribute");
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = find("cublasLtMatrixLayoutDestroy");
  decltype(&cublasLtMatmulPreferenceCreate) wishes_create = find("cublasLtMatmulPreferenceCreate");
  decltype(&cublasLtMatmulPreferenceSetAttribute) wishes_set = find("cublasLtMatmulPreferenceSetAttribute");
  decltype(&cublasLtMatmulPreferenceDestroy) wishes_destroy = find("cublasLtMatmulPreferenceDestroy");

 private:
  Symbol find(const char* name) const {
    if (void* const address = dlsym(library, name)) return {address};
    throw DeviceError(std::string("[cublasLt] the library has no ") + name +
                      "; try the one this was compiled with");
  }
};
const Functions& blas() {
  static const Functions functions;
  return functions;
}

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
  void operator()(cublasLtMatmulPreference_t x) const { blas().wishes_destroy(x); }
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
    case Epilogue::bias_gradient: return CUBLASLT_EPILOGUE_BGRADB;  // the library's B is our a
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

/// The addresses of a product.
struct Operands {
  const void *a, *b;
  void *c, *bias, *before;
};

/// The alignment of an address, as far as the library's choice depends on it.
struct Alignments {
  explicit Alignments(const Operands& x)
      : a(alignment_of(x.a)),
        b(alignment_of(x.b)),
        c(alignment_of(x.c)),
        bias(alignment_of(x.bias)),
        before(alignment_of(x.before)) {}
  std::uint32_t a, b, c, bias, before;
};

/// The library reports what it cannot do in several ways, for some epilogues by calling them invalid.
bool is_refusal(cublasStatus_t status, const StridedProducts& p) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ||
         (status == CUBLAS_STATUS_INVALID_VALUE && p.epilogue != Epilogue::none);
}

/// A product in the library's description, with its algorithm. The library's matrices are column-major: read
/// so, our a, b and c are transposed, and c^T = b^T a^T.
struct Plan {
  Plan(cublasLtHandle_t handle, const StridedProducts& p, cublasComputeType_t compute, const Operands& x) {
    cublasLtMatmulDesc_t made = nullptr;
    check(blas().product_create(&made, compute, library_type(wide(p.factors))), "describing a product");
    operation.reset(made);
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    describe_epilogue(p, x);
    left =
        layout(p.factors, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb, p.count, p.stride_b);
    right =
        layout(p.factors, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda, p.count, p.stride_a);
    result = layout(p.result, p.n, p.m, p.ldc, p.count, p.stride_c);

    cublasLtMatmulPreference_t wishes = nullptr;
    check(blas().wishes_create(&wishes), "choosing an algorithm");
    const Owned<cublasLtMatmulPreference_t> owned(wishes);
    const auto wish = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
      check(blas().wishes_set(wishes, which, &value, sizeof value), "choosing an algorithm");
    };
    wish(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kMostWorkspace});
    // Sums of a split k must be added in one order: in the workspace, or k is not split.
    wish(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    const Alignments align(x);
    wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align.b);
    wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align.a);
    wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align.c);
    wish(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align.c);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = blas().heuristic(handle, operation.get(), left.get(), right.get(),
                                                   result.get(), result.get(), wishes, 1, &found, &count);
    if (!is_refusal(status, p)) check(status, "choosing an algorithm");
    is_possible = status == CUBLAS_STATUS_SUCCESS && count > 0;
    algorithm = found.algo;
    workspace = found.workspaceSize;
  }

  /// The addresses, which the library needs before it chooses, and before each product.
  void set_addresses(const StridedProducts& p, const Operands& x) const {
    if (p.epilogue == Epilogue::none) return;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, x.bias);
    if (x.before != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, x.before);
  }

  Owned<cublasLtMatmulDesc_t> operation;
  Owned<cublasLtMatrixLayout_t> left, right, result;
  bool is_possible = false;
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace = 0;

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t which, const Value& value) const {
    check(blas().product_set(operation.get(), which, &value, sizeof value), "describing a product");
  }
  void describe_epilogue(const StridedProducts& p, const Operands& x) const {
    if (p.epilogue == Epilogue::none) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, library_epilogue(p.epilogue, x.before != nullptr));
    if (x.before != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{p.ldc});
    set_addresses(p, x);
  }
};

/// The inputs of the library's choice.
auto key_of(const StridedProducts& p, cublasComputeType_t compute, const Operands& x) {
  const Alignments align(x);
  return std::make_tuple(p.factors, p.result, p.m, p.n, p.k, p.transpose_a, p.transpose_b, p.lda, p.ldb,
                         p.ldc, p.count, p.stride_a, p.stride_b, p.stride_c, p.epilogue, x.before != nullptr,
                         compute, align.a, align.b, align.c, align.bias, align.before);
}
using Key = decltype(key_of({}, {}, {}));

/// The library's handle for one device, and a plan for each product so far.
class Library {
 public:
  Library() { check(blas().create(&handle_), "starting the library"); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  cublasLtHandle_t handle() const { return handle_; }
  /// Held while a plan is in use: it stores the addresses of one product.
  std::mutex& mutex() { return mutex_; }
  Plan& plan(const StridedProducts& p, cublasComputeType_t compute, const Operands& x) {
    std::unique_ptr<Plan>& found = plans_[key_of(p, compute, x)];
    if (!found) found = std::make_unique<Plan>(handle_, p, compute, x);
    return *found;
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

Library& library_of(int device) {
  static auto* const libraries = new std::map<int, std::unique_ptr<Library>>;  // outlives every static tensor
  static std::mutex* const mutex = new std::mutex;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<Library>& library = (*libraries)[device];
  if (!library) library = std::make_unique<Library>();
  return *library;
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
  const std::lock_guard<std::mutex> lock(library.mutex());
  Plan& plan = library.plan(p, compute_type(p.factors), x);
  if (!plan.is_possible) return false;
  plan.set_addresses(p, x);
  std::optional<kernels::Scratch<char>> workspace;
  if (plan.workspace > 0) workspace.emplace(kernels::Cuda{device}, static_cast<Index>(plan.workspace));
  const auto run = [&](const auto& alpha, const auto& beta) {
    return blas().matmul(library.handle(), plan.operation.get(), &alpha, b, plan.left.get(), a,
                         plan.right.get(), &beta, c, plan.result.get(), c, plan.result.get(), &plan.algorithm,
                         workspace ? workspace->data() : nullptr, plan.workspace, stream);
  };
  const cublasStatus_t status = p.factors == DType::f64
                                    ? run(p.scale, p.add ? 1.0 : 0.0)
                                    : run(static_cast<float>(p.scale), p.add ? 1.0f : 0.0f);
  if (is_refusal(status, p)) {
    plan.is_possible = false;
    return false;
  }
  check(status, "queuing a product");
  wait_if_host_readable(stream, "running a matrix product");
  return true;
}

}  // namespace tapeformer::cuda
