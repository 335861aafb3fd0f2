#include <libraries/emulated_cublaslt.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

using namespace tapeformer;

namespace {

/// During its lifetime, the emulated library answers so.
class Library {
 public:
  explicit Library(const emulator::MatmulLibrary& answers) { emulator::matmul_library() = answers; }
  ~Library() { emulator::matmul_library() = {}; }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
};

/// a b of matrices of a size that no other case has, since plans are kept, and what multiply() did.
struct Product {
  explicit Product(Index size) {
    Generator random(test_seed(1));
    a = on_gpu(host_normal({size, size}, random)), b = on_gpu(host_normal({size, size}, random));
    products.factors = products.result = DType::f64;
    products.m = products.n = products.k = products.lda = products.ldb = products.ldc = size;
  }
  bool run() const { return cuda::multiply(0, products, address(a), address(b), address(c)); }
  static void* address(const Tensor& x) { return x.state()->storage->data; }
  Tensor a, b, c = on_gpu(Tensor::zeros({64, 64}, DType::f64, Device::cpu()));
  cuda::StridedProducts products;
};

}  // namespace

TEST_CASE("an algorithm gets the workspace that it asks for") {
  const Library library({CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_SUCCESS, 4096});
  const Product own(64);
  REQUIRE(own.run());
  CHECK_BELOW(absolute_error(readable(own.c), matmul(readable(own.a), readable(own.b))), 1e-12);
}

TEST_CASE("a refused product, when asked or when called, is tried again only after very many others") {
  const Product refused(56), refused_late(48);
  {
    const Library library({CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_SUCCESS, 0});
    CHECK(!refused.run());
  }
  {
    const Library library({CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_SUPPORTED, 0});
    CHECK(!refused_late.run());
  }
  CHECK(!refused.run());
  CHECK(!refused_late.run());
  Product other(1);
  for (; other.products.stride_a < 1 << 16; ++other.products.stride_a) other.run();
  CHECK(refused.run());
}

TEST_CASE("other failures are errors that say what was done") {
  const auto message = [](Index size, cublasStatus_t heuristic, cublasStatus_t product) {
    const Library library({heuristic, product, 0});
    const Product own(size);
    return message_of<DeviceError>([&] { own.run(); });
  };
  CHECK(message(40, CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_SUCCESS) ==
        "[cublasLt] choosing an algorithm failed: CUBLAS_STATUS_EXECUTION_FAILED");
  CHECK(message(32, CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_EXECUTION_FAILED) ==
        "[cublasLt] queuing a product failed: CUBLAS_STATUS_EXECUTION_FAILED");
}
