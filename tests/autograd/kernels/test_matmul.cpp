#include <doctest/doctest.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/tests/reference/threads.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using namespace tapeformer;

namespace {

struct RoundedFactors {
  RoundedFactors() { set_matmul_precision(MatmulPrecision::bf16); }
  ~RoundedFactors() { set_matmul_precision(MatmulPrecision::f32); }
};

/// c = scale a b, or that added to c, from whole numbers, so that every order of adding up is exact. The
/// matrices end with their last number, where the address sanitizer watches; between their rows are NaNs
/// that must be left alone, and out of the product.
template <class T>
struct Case {
  Case(Index m, Index n, Index k, Index gap, double scale, bool add, bool transpose_a = false,
       bool transpose_b = true)
      : adds(add) {
    shape.m = m, shape.n = n, shape.k = k, shape.scale = scale;
    shape.transpose_a = transpose_a, shape.transpose_b = transpose_b;
    shape.lda = (transpose_a ? m : k) + gap, shape.ldb = (transpose_b ? k : n) + 2 * gap;
    shape.ldc = n + 3 * gap;
    a = transpose_a ? matrix(k, m, shape.lda, 7, 11) : matrix(m, k, shape.lda, 7, 11);
    b = transpose_b ? matrix(n, k, shape.ldb, 5, 13) : matrix(k, n, shape.ldb, 5, 13);
    c = matrix(m, n, shape.ldc, 3, 17);
    expected = c;
    for (Index i = 0; i < m; ++i) {
      for (Index j = 0; j < n; ++j) {
        double sum = 0;
        for (Index x = 0; x < k; ++x) {
          sum += double(a[transpose_a ? at(x, i, shape.lda) : at(i, x, shape.lda)]) *
                 double(b[transpose_b ? at(j, x, shape.ldb) : at(x, j, shape.ldb)]);
        }
        T& value = expected[at(i, j, shape.ldc)];
        value = static_cast<T>(scale * sum + (add ? double(value) : 0));
      }
      if (!add) std::fill_n(&c[at(i, 0, shape.ldc)], n, std::numeric_limits<T>::quiet_NaN());
    }
  }

  std::vector<T> product() const {
    std::vector<T> y = c;
    kernels::gemm(kernels::Cpu{}, shape, a.data(), b.data(), kernels::Write<T>{y.data(), adds});
    return y;
  }

  static std::size_t at(Index row, Index column, Index lead) {
    return static_cast<std::size_t>(row * lead + column);
  }

  static std::vector<T> matrix(Index rows, Index columns, Index lead, Index step, Index modulus) {
    std::vector<T> x(at(rows - 1, columns, lead), std::numeric_limits<T>::quiet_NaN());
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < columns; ++j)
        x[at(i, j, lead)] = static_cast<T>((i * columns + j) * step % modulus - modulus / 2);
    return x;
  }

  kernels::Gemm shape;
  bool adds;
  std::vector<T> a, b, c, expected;
};

template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

template <class T>
void check_products(Index m, Index n, Index k) {
  for (const bool add : {false, true}) {
    INFO(m, " ", n, " ", k, " ", add);
    const Case<T> one(m, n, k, add ? 3 : 0, add ? 0.5 : 1, add);
    for (const int threads : {1, 2, 3}) {
      CAPTURE(threads);
      const Threads set(threads);
      CHECK(same_bits(one.product(), one.expected));
    }
  }
}

}  // namespace

TEST_CASE(
    "a few rows times a large matrix: rows, columns and depths beyond whole vectors, tiles and blocks") {
  const Index sizes[][2] = {{64, 3125}, {65, 3077}, {401, 513}, {391, 512}, {4099, 49}, {66667, 3}};
  for (const auto& [n, k] : sizes) {
    for (const Index m : {15, 16, 31, 128, 129}) {
      if (m > 31 && n > 4000) continue;
      check_products<float>(m, n, k);
      if (m < 32) check_products<double>(m, n, k);
    }
  }
}

TEST_CASE("many rows, shared out among the threads") {
  for (const Index m : {128, 191, 259}) {
    check_products<float>(m, 37, 129);
    check_products<double>(m, 37, 129);
  }
}

TEST_CASE("factors whose lines are a multiple of 1 KB apart, in every layout") {
  for (const auto& [m, n] : {std::array<Index, 2>{256, 70}, {40, 1280}, {256, 256}}) {
    for (const int layout : {0, 1, 2, 3}) {
      for (const bool add : {false, true}) {
        INFO(m, " ", n, " ", layout, " ", add);
        const Case<float> one(m, n, 1029, 0, 0.5, add, layout & 1, layout & 2);
        for (const int threads : {1, 3}) {
          const Threads set(threads);
          CHECK(same_bits(one.product(), one.expected));
        }
      }
    }
  }
}

TEST_CASE("few rows have the same bits with any number of threads") {
  Case<float> one(33, 601, 700, 0, 0.3, false);
  for (std::vector<float>* x : {&one.a, &one.b})
    for (std::size_t i = 0; i < x->size(); ++i) (*x)[i] = std::sin(static_cast<float>(i));
  std::vector<std::vector<float>> found;
  for (const int threads : {1, 2, 3}) {
    const Threads set(threads);
    found.push_back(one.product());
  }
  CHECK(same_bits(found[0], found[1]));
  CHECK(same_bits(found[0], found[2]));
}

TEST_CASE("rounded factors: blocks of either factor, deep sums, every layout") {
  const RoundedFactors rounded;
  const Index sizes[][3] = {{32, 32, 32},  {33, 70, 45},   {530, 40, 61},
                            {40, 530, 61}, {67, 35, 2053}, {35, 67, 1025}};
  for (const auto& [m, n, k] : sizes) {
    for (const int layout : {0, 1, 2, 3}) {
      for (const bool add : {false, true}) {
        INFO(m, " ", n, " ", k, " ", layout, " ", add);
        const Case<float> one(m, n, k, add ? 3 : 0, 1, add, layout & 1, layout & 2);
        for (const int threads : {1, 3}) {
          const Threads set(threads);
          CHECK(same_bits(one.product(), one.expected));
        }
      }
    }
  }
}

TEST_CASE("factors are rounded to bf16, ties to even, where it saves time and is wanted") {
  // 1 + 2^-8 is halfway between two numbers of bf16; 1 + 3 2^-8 too.
  const auto product = [](Index m, float factor, double scale) {
    Case<float> one(m, 32, 64, 0, scale, false);
    std::fill(one.a.begin(), one.a.end(), factor);
    std::fill(one.b.begin(), one.b.end(), 1.0f);
    return one.product().back();
  };
  const float low = 1 + 0x1p-8f, high = 1 + 0x3p-8f;
  CHECK(product(32, low, 1) == 64 * low);
  const RoundedFactors rounded;
  CHECK(product(32, low, 1) == 64);
  CHECK(product(32, high, 1) == 64 * (1 + 0x1p-6f));
  CHECK(product(31, low, 1) == 64 * low);
  CHECK(product(32, low, 0.5) == 32 * low);
  Case<double> exact(32, 32, 64, 0, 1, false);
  std::fill(exact.a.begin(), exact.a.end(), double{low});
  std::fill(exact.b.begin(), exact.b.end(), 1.0);
  CHECK(exact.product().back() == 64 * double{low});
}
