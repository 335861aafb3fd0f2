#include <libraries/emulated_cublaslt.h>
#include <tapeformer/autograd/cuda/graph.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/autograd/kernels/full_device.h>

#include <cstdlib>
#include <string>

using namespace tapeformer;
using emulator::MatmulAlgorithm;

namespace {

/// While it lives, TAPEFORMER_MATMUL_ALGORITHM is set.
class Choosing {
 public:
  explicit Choosing(const char* name) { setenv("TAPEFORMER_MATMUL_ALGORITHM", name, 1); }
  ~Choosing() { unsetenv("TAPEFORMER_MATMUL_ALGORITHM"); }
  Choosing(const Choosing&) = delete;
  Choosing& operator=(const Choosing&) = delete;
};

/// While it lives, the emulated library has these algorithms.
class Library {
 public:
  explicit Library(std::vector<MatmulAlgorithm> algorithms) {
    all().algorithms = std::move(algorithms);
    for (auto& calls : all().calls) calls = 0;
  }
  ~Library() { all().algorithms = {{}}, all().heuristic = CUBLAS_STATUS_SUCCESS; }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  static emulator::MatmulLibrary& all() { return emulator::matmul_library(); }
  /// How often each algorithm was called since the last time.
  std::vector<int> calls() const {
    std::vector<int> calls;
    for (std::size_t i = 0; i < all().algorithms.size(); ++i) calls.push_back(all().calls[i].exchange(0));
    return calls;
  }
};
using Calls = std::vector<int>;

bool is_emulated() { return cuda::device_name(0).find("emulated") == 0; }

MatmulAlgorithm taking(std::int64_t microseconds) {
  MatmulAlgorithm algorithm;
  algorithm.microseconds = microseconds;
  return algorithm;
}

/// Sizes that no other case has, since plans are kept for good.
Index fresh_size() {
  static Index size = 40;
  return size += 8;
}

/// c = a b (+ c) of n x n matrices on the GPU.
struct Case {
  explicit Case(Index n, DType type = DType::f32) {
    Generator random(test_seed(1));
    for (Tensor* x : {&a, &b, &c, &bias, &seen}) *x = host_normal({x == &bias ? 1 : n, n}, random).to(type);
    expected = matmul(readable(a), readable(b));
    a = on_gpu(a), b = on_gpu(b), c = on_gpu(c), bias = on_gpu(bias), seen = on_gpu(seen);
    products.factors = products.result = type;
    products.m = products.n = products.k = products.lda = products.ldb = products.ldc = n;
  }
  bool run() {
    return cuda::multiply(0, products, address(a), address(b), address(c), epilogue_bias(),
                          has_before ? address(seen) : nullptr);
  }
  static void* address(const Tensor& x) { return x.state()->storage->data; }
  void* epilogue_bias() const { return products.epilogue == cuda::Epilogue::none ? nullptr : address(bias); }
  Tensor a, b, c, bias, seen, expected;
  bool has_before = false;
  cuda::StridedProducts products;
};

}  // namespace

TEST_SUITE("autograd/kernels/cuda_cublaslt") {
  TEST_CASE("the first choice is taken unless the fastest is asked for") {
    if (!is_emulated()) return;
    const Library library({taking(30), taking(10)});
    Case own(fresh_size());
    REQUIRE(own.run());
    CHECK(library.calls() == Calls{1, 0});
    const Choosing fastest("fastest");
    REQUIRE(own.run());
    CHECK(library.calls() == Calls{1, 0});  // what was chosen is kept
  }

  TEST_CASE("the fastest of eight is taken, for good, and c is written once") {
    if (!is_emulated()) return;
    const Choosing fastest("fastest");
    std::vector<MatmulAlgorithm> algorithms;
    for (const int microseconds : {30, 40, 25, 50, 12, 20, 60, 70, 1})
      algorithms.push_back(taking(microseconds));
    algorithms[4].workspace = 4096;
    const Library library(algorithms);
    for (const bool adds : {false, true}) {
      Case own(fresh_size());
      own.products.add = adds;
      const Tensor before = readable(own.c);
      REQUIRE(own.run());
      CHECK(library.calls() == Calls{5, 5, 5, 5, 6, 5, 5, 5, 0});
      CHECK_BELOW(absolute_error(readable(own.c), adds ? own.expected + before : own.expected), 1e-4);
      Library::all().algorithms[4].microseconds = 100;
      own.products.add = false;
      REQUIRE(own.run());
      CHECK(library.calls() == Calls{0, 0, 0, 0, 1, 0, 0, 0, 0});
      Library::all().algorithms[4].microseconds = 12;
    }
  }

  TEST_CASE("an algorithm that is hardly faster than the first choice is not taken") {
    if (!is_emulated()) return;
    const Choosing fastest("fastest");
    const Library library({taking(100), taking(98)});
    Case own(fresh_size());
    REQUIRE(own.run());
    CHECK(library.calls() == Calls{6, 5});
  }

  TEST_CASE("timing leaves a bias as it is, and writes its gradient and what an activation saw once") {
    if (!is_emulated()) return;
    const Choosing fastest("fastest");
    for (const cuda::Epilogue epilogue : {cuda::Epilogue::bias, cuda::Epilogue::relu_bias,
                                          cuda::Epilogue::gelu_tanh_bias, cuda::Epilogue::bias_gradient}) {
      const Library library({taking(30), taking(10)});
      Case own(fresh_size());
      own.products.epilogue = epilogue;
      own.products.transpose_a = epilogue == cuda::Epilogue::bias_gradient;
      own.has_before = epilogue == cuda::Epilogue::gelu_tanh_bias;
      const Tensor before = readable(own.bias);
      REQUIRE(own.run());
      CHECK(library.calls() == Calls{5, 6});
      const Tensor x = readable(own.bias);
      if (own.has_before) CHECK_BELOW(absolute_error(readable(own.seen), own.expected + before), 1e-4);
      if (epilogue != cuda::Epilogue::bias_gradient) {
        CHECK(absolute_error(x, before) == 0);
        continue;
      }
      CHECK_BELOW(absolute_error(x, sum(readable(own.a), {0}, true)), 1e-4);
    }
  }

  TEST_CASE("during a capture nothing is timed, and the first choice is kept") {
    if (!is_emulated()) return;
    const Choosing fastest("fastest");
    const Library library({taking(30), taking(10)});
    Case own(fresh_size());
    cuda::Capture capture(0, 1 << 20);
    REQUIRE(own.run());
    CHECK(library.calls() == Calls{1, 0});
    const auto graph = capture.finish();
    CHECK(graph->nodes() == 1);
    graph->launch();
    CHECK_BELOW(absolute_error(readable(own.c), own.expected), 1e-4);
    REQUIRE(own.run());
    CHECK(library.calls() == Calls{1, 0});
  }

  TEST_CASE("where memory does not suffice for timing, the first choice is kept") {
    if (!is_emulated() || !FullDevice::is_possible()) return;
    const Choosing fastest("fastest");
    const Library library({taking(30), taking(10)});
    Case own(1600);
    {
      const FullDevice full(0);
      REQUIRE(own.run());
    }
    REQUIRE(own.run());
    CHECK(library.calls() == Calls{2, 0});
  }

  TEST_CASE("algorithms that the library refuses, when asked or when called, are not taken") {
    if (!is_emulated()) return;
    const Choosing fastest("fastest");
    std::vector<MatmulAlgorithm> algorithms{taking(30), taking(5), taking(20), taking(6)};
    algorithms[1].state = CUBLAS_STATUS_INVALID_VALUE;
    algorithms[3].status = CUBLAS_STATUS_NOT_SUPPORTED;
    {
      const Library library(algorithms);
      Case own(fresh_size());
      REQUIRE(own.run());
      CHECK(library.calls() == Calls{5, 0, 6, 0});
    }
    for (MatmulAlgorithm& one : algorithms) one.status = CUBLAS_STATUS_NOT_SUPPORTED;
    const Library library(algorithms);
    Case own(fresh_size());
    CHECK(!own.run());
    CHECK(!own.run());
  }

  TEST_CASE("other failures are errors that say what was done") {
    if (!is_emulated()) return;
    const auto message = [](const char* choosing, cublasStatus_t heuristic, cublasStatus_t status) {
      const Choosing how(choosing);
      const Library library({taking(30), taking(10)});
      Library::all().heuristic = heuristic;
      for (MatmulAlgorithm& one : Library::all().algorithms) one.status = status;
      Case own(fresh_size());
      return message_of<DeviceError>([&] { own.run(); });
    };
    constexpr cublasStatus_t kFine = CUBLAS_STATUS_SUCCESS, kFailed = CUBLAS_STATUS_EXECUTION_FAILED;
    CHECK(message("fastest", kFailed, kFine) ==
          "[cublasLt] choosing an algorithm failed: CUBLAS_STATUS_EXECUTION_FAILED");
    CHECK(message("fastest", kFine, kFailed) ==
          "[cublasLt] timing a product failed: CUBLAS_STATUS_EXECUTION_FAILED");
    CHECK(message("first", kFine, kFailed) ==
          "[cublasLt] queuing a product failed: CUBLAS_STATUS_EXECUTION_FAILED");
    CHECK(message("slowest", kFine, kFine) ==
          "[matmul] TAPEFORMER_MATMUL_ALGORITHM is first or fastest; got slowest; try without it");
  }

  TEST_CASE("the fastest algorithm's products are as exact") {
    const Choosing fastest("fastest");
    for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
      CAPTURE(type);
      Case own(fresh_size(), type);
      REQUIRE(own.run());
      CHECK_BELOW(relative_error(readable(own.c), own.expected), type == DType::bf16 ? 1e-2 : 1e-5);
    }
  }
}
