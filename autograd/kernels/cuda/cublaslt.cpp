#include <tapeformer/autograd/cuda/runtime.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt_functions.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace tapeformer::cuda {
namespace {

constexpr std::size_t kMostWorkspace = std::size_t{32} << 20;
constexpr std::uint32_t kMostAlignment = 256;  // the most that the library's heuristic needs
constexpr int kMostAlgorithms = 8;             // that are timed
/// Each algorithm runs once to warm up, and then so often.
constexpr int kTimings = 4;
/// The library's first choice is kept unless another one takes less than this part of its time.
constexpr float kWorthwhile = 0.97f;

/// True if TAPEFORMER_MATMUL_ALGORITHM asks for the fastest algorithms, not for the library's first choice.
bool wants_fastest() {
  const char* set = std::getenv("TAPEFORMER_MATMUL_ALGORITHM");
  const std::string name = set == nullptr ? "first" : set;
  if (name == "first" || name == "fastest") return name == "fastest";
  throw DeviceError("[matmul] TAPEFORMER_MATMUL_ALGORITHM is first or fastest; got " + name +
                    "; try without it");
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

struct Algorithm {
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace;
};

/// A product in the library's description, and its algorithms, its first choice first. The library's
/// matrices are column-major: read so, our a, b and c are transposed, and c^T = b^T a^T.
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
    std::array<cublasLtMatmulHeuristicResult_t, kMostAlgorithms> found{};
    int count = 0;
    const cublasStatus_t status =
        blas().heuristic(handle, operation.get(), left.get(), right.get(), result.get(), result.get(), wishes,
                         wants_fastest() ? kMostAlgorithms : 1, found.data(), &count);
    if (is_refusal(status, p)) return;
    check(status, "choosing an algorithm");
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS)
        algorithms.push_back({found[i].algo, found[i].workspaceSize});
    }
  }

  /// The addresses, which the library needs before it chooses, and before each product.
  void set_addresses(const StridedProducts& p, const Operands& x) const {
    if (p.epilogue == Epilogue::none) return;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, x.bias);
    if (x.before != nullptr) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, x.before);
  }

  /// Queues the product after set_addresses().
  cublasStatus_t run(cublasLtHandle_t handle, const Algorithm& by, const StridedProducts& p,
                     const Operands& x, void* workspace, cudaStream_t stream) const {
    const auto run_with = [&](const auto& alpha, const auto& beta) {
      return blas().matmul(handle, operation.get(), &alpha, x.b, left.get(), x.a, right.get(), &beta, x.c,
                           result.get(), x.c, result.get(), &by.algorithm, workspace, by.workspace, stream);
    };
    return p.factors == DType::f64 ? run_with(p.scale, p.add ? 1.0 : 0.0)
                                   : run_with(static_cast<float>(p.scale), p.add ? 1.0f : 0.0f);
  }

  Owned<cublasLtMatmulDesc_t> operation;
  Owned<cublasLtMatrixLayout_t> left, right, result;
  std::vector<Algorithm> algorithms;  // none if the library cannot compute the product

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
  /// At least `count` events that keep the time.
  const std::vector<cudaEvent_t>& events(std::size_t count) {
    while (events_.size() < count) {
      events_.emplace_back();
      cuda::check(cudaEventCreateWithFlags(&events_.back(), cudaEventDefault), "making an event");
    }
    return events_;
  }
  Plan& plan(const StridedProducts& p, cublasComputeType_t compute, const Operands& x) {
    std::unique_ptr<Plan>& found = plans_[key_of(p, compute, x)];
    if (!found) found = std::make_unique<Plan>(handle_, p, compute, x);
    return *found;
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  std::vector<cudaEvent_t> events_;
};

Library& library_of(int device) {
  static auto* const libraries = new std::map<int, std::unique_ptr<Library>>;  // outlives every static tensor
  static std::mutex* const mutex = new std::mutex;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<Library>& library = (*libraries)[device];
  if (!library) library = std::make_unique<Library>();
  return *library;
}

/// Memory of the pool until the kernels queued so far are done with it.
class Workspace {
 public:
  Workspace(int device, std::size_t bytes)
      : device_(device), bytes_(bytes), memory_(bytes > 0 ? allocate(device, bytes) : nullptr) {}
  ~Workspace() { release(device_, memory_, bytes_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* memory() const { return memory_; }

 private:
  int device_;
  std::size_t bytes_;
  void* memory_;
};

/// Memory for what a product writes, besides its own: it is timed many times, and must add to c once.
class ResultCopies {
 public:
  ResultCopies(int device, const StridedProducts& p, const Operands& x)
      : has_bias_(p.epilogue == Epilogue::bias_gradient),
        memory_(device,
                bytes_of_c(p) * (x.before != nullptr ? 2 : 1) + (has_bias_ ? bytes_of_row(p.m, p) : 0)),
        operands_(x) {
    char* at = static_cast<char*>(memory_.memory());
    operands_.c = at, at += bytes_of_c(p);
    if (has_bias_) operands_.bias = at, at += bytes_of_row(p.m, p);
    if (x.before != nullptr) operands_.before = at;
  }
  const Operands& operands() const { return operands_; }

 private:
  /// A multiple of kMostAlignment.
  static std::size_t bytes_of_row(Index elements, const StridedProducts& p) {
    const auto bytes = static_cast<std::size_t>(elements * bytes_of(p.result));
    return (bytes + kMostAlignment - 1) / kMostAlignment * kMostAlignment;
  }
  static std::size_t bytes_of_c(const StridedProducts& p) {
    return bytes_of_row((p.count - 1) * p.stride_c + (p.m - 1) * p.ldc + p.n, p);
  }

  bool has_bias_;
  Workspace memory_;
  Operands operands_;
};

constexpr float kNever = std::numeric_limits<float>::infinity();

/// The least milliseconds that each of a plan's algorithms takes; kNever for those that the library refuses.
/// Waits for the device.
std::vector<float> times_of(int device, Library& library, const Plan& plan, const StridedProducts& p,
                            const Operands& x, void* workspace) {
  const cudaStream_t stream = stream_of(device);
  const std::size_t count = plan.algorithms.size(), runs = (1 + kTimings) * count;
  const std::vector<cudaEvent_t>& events = library.events(runs + 1);
  const auto record = [&](std::size_t i) {
    cuda::check(cudaEventRecord(events[i], stream), "timing a product");
  };
  std::vector<bool> is_refused(count);
  plan.set_addresses(p, x);
  record(0);
  for (std::size_t run = 0; run < runs; ++run) {
    if (!is_refused[run % count]) {
      const cublasStatus_t status =
          plan.run(library.handle(), plan.algorithms[run % count], p, x, workspace, stream);
      is_refused[run % count] = is_refusal(status, p);
      if (!is_refused[run % count]) check(status, "timing a product");
    }
    record(run + 1);
  }
  cuda::check(cudaEventSynchronize(events[runs]), "timing a product");
  std::vector<float> least(count, kNever);
  for (std::size_t run = count; run < runs; ++run) {
    float milliseconds = kNever;
    cuda::check(cudaEventElapsedTime(&milliseconds, events[run], events[run + 1]), "timing a product");
    if (!is_refused[run % count]) least[run % count] = std::min(least[run % count], milliseconds);
  }
  return least;
}

/// Leaves the fastest of a plan's algorithms, or none if the library refuses all.
void choose_fastest(int device, Library& library, Plan& plan, const StridedProducts& p, const Operands& x) {
  std::size_t most = 0;
  for (const Algorithm& one : plan.algorithms) most = std::max(most, one.workspace);
  std::unique_ptr<const ResultCopies> copies;
  std::unique_ptr<const Workspace> workspace;
  try {
    copies = std::make_unique<const ResultCopies>(device, p, x);
    workspace = std::make_unique<const Workspace>(device, most);
  } catch (const DeviceError&) {
    plan.algorithms.resize(1);  // there is no memory to time them in
    return;
  }
  const std::vector<float> times =
      times_of(device, library, plan, p, copies->operands(), workspace->memory());
  const auto fastest = static_cast<std::size_t>(std::min_element(times.begin(), times.end()) - times.begin());
  if (times[fastest] == kNever)
    plan.algorithms.clear();
  else
    plan.algorithms = {plan.algorithms[times[fastest] < kWorthwhile * times[0] ? fastest : 0]};
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
  if (plan.algorithms.size() > 1) {
    if (is_capturing())
      plan.algorithms.resize(1);  // nothing runs, and a product keeps its algorithm ever after
    else
      choose_fastest(device, library, plan, p, x);
  }
  if (plan.algorithms.empty()) return false;
  plan.set_addresses(p, x);
  const Algorithm& algorithm = plan.algorithms.front();
  const Workspace workspace(device, algorithm.workspace);
  const cublasStatus_t status = plan.run(library.handle(), algorithm, p, x, workspace.memory(), stream);
  if (is_refusal(status, p)) {
    plan.algorithms.clear();
    return false;
  }
  check(status, "queuing a product");
  wait_if_host_readable(stream, "running a matrix product");
  return true;
}

}  // namespace tapeformer::cuda
