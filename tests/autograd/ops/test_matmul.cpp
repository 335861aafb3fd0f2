#include <doctest/doctest.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/matmul_case.h>
#include <tapeformer/tests/reference/threads.h>

#include <nlohmann/json.hpp>

using namespace tapeformer;

namespace {

/// The largest error of a product of rounded factors: gamma sum |a b|, of a rounding for each product, and
/// those of the factors and the scale.
Tensor product_rounding(const Tensor& a, const Tensor& b, double scale = 1, DType type = DType::f32) {
  return affine(oracle(magnitude(a), magnitude(b), scale), gamma_of(a.size(-1) + 4, type), 0);
}

}  // namespace

TEST_CASE("a product and its gradients worked by hand") {
  const Parameter a(values({1, 2, 3, 4}, {2, 2})), b(values({5, 6, 7, 8}, {2, 2}));
  Tape tape;
  const Tensor y = matmul(a, b, 0.5);
  CHECK(y.to_vector<double>() == std::vector<double>{9.5, 11, 21.5, 25});
  tape.backward(y, values({2, 0, 0, 0}, {2, 2}));
  CHECK(a.gradient().to_vector<double>() == std::vector<double>{5, 7, 0, 0});
  CHECK(b.gradient().to_vector<double>() == std::vector<double>{1, 0, 2, 0});
}

TEST_CASE("products agree with plain loops at every size, transposed or not") {
  Generator random(test_seed(1));
  const Index sizes[][3] = {{1, 1, 1},   {31, 32, 33}, {32, 33, 31}, {33, 31, 32}, {257, 3, 5},
                            {3, 257, 5}, {3, 5, 257},  {1, 31, 1},   {0, 3, 4},    {3, 4, 0}};
  for (const auto& size : sizes) {
    const Index m = size[0], k = size[1], n = size[2];
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        INFO(m, " ", k, " ", n);
        const Tensor a = random_normal(transpose_a ? Shape{k, m} : Shape{m, k}, random);
        const Tensor b = random_normal(transpose_b ? Shape{n, k} : Shape{k, n}, random);
        const Tensor expected = oracle(factor(a, transpose_a), factor(b, transpose_b), 0.3);
        for (const DType type : {DType::f64, DType::f32}) {
          const Tensor got = matmul(factor(a.to(type), transpose_a), factor(b.to(type), transpose_b), 0.3);
          CHECK_BELOW(over_bound(got, expected,
                                 product_rounding(plain(factor(a, transpose_a)),
                                                  plain(factor(b, transpose_b)), 0.3, type)),
                      2);  // few roundings may well add up, and in f64 both sides have them
        }
      }
    }
  }
}

TEST_CASE("an empty inner axis gives zeros") {
  const Parameter a(Tensor::zeros({2, 0}, DType::f64)), b(Tensor::zeros({0, 3}, DType::f64));
  Tape tape;
  const Tensor y = matmul(a, b);
  CHECK(y.to_vector<double>() == std::vector<double>(6, 0));
  tape.backward(y, Tensor::full({2, 3}, 1, DType::f64));
  CHECK(a.gradient().shape() == Shape{2, 0});
  const Tensor stack = matmul(Tensor::zeros({2, 3, 0}), Tensor::zeros({0, 4}));
  CHECK(stack.to_vector<float>() == std::vector<float>(24, 0));
  matmul(Tensor::full({16, 64}, 1), transposed(Tensor::full({64, 64}, 1)));  // leaves its sums in memory
  const Tensor few_rows = matmul(Tensor::zeros({16, 0}), transposed(Tensor::zeros({64, 0})));
  CHECK(few_rows.to_vector<float>() == std::vector<float>(16 * 64, 0));
}

TEST_CASE("a product over no rows adds nothing to a gradient that is there") {
  const Parameter weight(values({1, 2, 3, 4}, {2, 2}));
  for (const Index rows : {1, 0}) {
    Tape tape;
    const Tensor y = linear(Tensor::full({rows, 2}, 3, DType::f64), weight);
    tape.backward(y, Tensor::full({rows, 2}, 1, DType::f64));
  }
  CHECK(weight.gradient().to_vector<double>() == std::vector<double>{3, 3, 3, 3});
}

TEST_CASE("stacks of matrices broadcast in every position, with every combination of transposes") {
  Generator random(test_seed(2));
  const std::pair<Shape, Shape> stacks[] = {
      {{}, {}},      {{3}, {3}},       {{3}, {}},  {{}, {3}},        {{2, 3}, {}},       {{2, 1}, {3}},
      {{1}, {2, 3}}, {{2, 1}, {1, 3}}, {{0}, {1}}, {{2, 3}, {2, 3}}, {{2, 1, 2}, {3, 1}}};
  for (const auto& [batch_a, batch_b] : stacks) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        Shape shape_a = batch_a, shape_b = batch_b;
        for (const Index size : {transpose_a ? 5 : 4, transpose_a ? 4 : 5}) shape_a.append(size);
        for (const Index size : {transpose_b ? 3 : 5, transpose_b ? 5 : 3}) shape_b.append(size);
        INFO(shape_a.text(), " ", shape_b.text());
        const Tensor a = random_normal(shape_a, random), b = random_normal(shape_b, random);
        const Factor left = factor(a, transpose_a), right = factor(b, transpose_b);
        CHECK_BELOW(relative_error(matmul(left, right, 1.5), oracle(left, right, 1.5)), 1e-14);
        check_both_orders(
            "matmul", [&] { return matmul(left, right, 1.5); }, {{"a", a}, {"b", b}}, 12);
      }
    }
  }
}

TEST_CASE("factors and outputs by head are read and written in place, in every combination") {
  Generator random(test_seed(3));
  for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}) {
    const bool transpose_a = flags & 1, transpose_b = flags & 2, head_b = flags & 4, head_y = flags & 8;
    CAPTURE(flags);
    // a is [B, T, H, D] by head; b is that or [B, H, T, D]; y is one or the other.
    const Index m = 4, k = 5, n = 3;
    const Index rows_a = transpose_a ? k : m, columns_a = transpose_a ? m : k;
    const Index rows_b = transpose_b ? n : k, columns_b = transpose_b ? k : n;
    const Tensor a = random_normal({2, rows_a, 3, columns_a}, random);
    const Tensor b =
        random_normal(head_b ? Shape{2, rows_b, 3, columns_b} : Shape{2, 3, rows_b, columns_b}, random);
    const Factor left = factor(a, transpose_a, true), right = factor(b, transpose_b, head_b);
    const Tensor y = matmul(left, right, 0.7, head_y);
    CHECK(y.shape() == (head_y ? Shape{2, m, 3, n} : Shape{2, 3, m, n}));
    CHECK_BELOW(relative_error(y, oracle(left, right, 0.7, head_y)), 1e-14);
    check_both_orders(
        "matmul by head", [&] { return matmul(left, right, 0.7, head_y); }, {{"a", a}, {"b", b}}, 12);
  }
}

TEST_CASE("heads broadcast: one key head for several query heads") {
  Generator random(test_seed(4));
  const Tensor query = random_normal({2, 4, 3, 5}, random), key = random_normal({2, 6, 1, 5}, random);
  const auto scores = [&] { return matmul(by_head(query), transposed(by_head(key))); };
  CHECK_BELOW(relative_error(scores(), oracle(by_head(query), transposed(by_head(key)))), 1e-14);
  check_both_orders("matmul by head", scores, {{"query", query}, {"key", key}}, 12);
}

TEST_CASE("many small products share the threads and give what one thread gives") {
  Generator random(test_seed(6));
  const Tensor a = random_normal({64, 9, 33}, random), b = random_normal({64, 33, 17}, random);
  const Tensor expected = oracle(a, b);
  for (const int threads : {1, 2, 3}) {
    const Threads set(threads);
    CHECK_BELOW(relative_error(matmul(a, b), expected), 1e-14);
    CHECK_BELOW(over_bound(matmul(a.to(DType::f32), b.to(DType::f32)), expected, product_rounding(a, b)), 1);
  }
}

TEST_CASE("errors name the rule and the factors") {
  const Tensor a = Tensor::zeros({2, 8, 64}), b = Tensor::zeros({32, 64});
  CHECK(message_of<ShapeError>([&] { return matmul(a, b); }) ==
        "[matmul] inner sizes must match; got a=f32[2,8,64], b=f32[32,64] (64 != 32); try transposed(b)");
  CHECK(message_of<ShapeError>([&] {
          return matmul(by_head(a), transposed(Tensor::zeros({32, 60})));
        }) ==
        "[matmul] inner sizes must match; got a=f32[2,8,64] by head, b=f32[32,60] transposed (64 != 60); try "
        "transposed(b)");
  CHECK(message_of<ShapeError>([&] { return matmul(Tensor::zeros({3}), b); }) ==
        "[matmul] a factor must have at least two axes, by head three; got factor=[3]; try reshape");
  CHECK(message_of<ShapeError>([&] { return matmul(by_head(b), b); }) ==
        "[matmul] a factor must have at least two axes, by head three; got factor=[32,64]; try reshape");
  CHECK(message_of<ShapeError>([&] { return matmul(b, transposed(b), 1, true); }) ==
        "[matmul] an output by head needs a head axis; got a=f32[32,64]");
  CHECK(message_of<ShapeError>([&] {
          return matmul(Tensor::zeros({2, 3, 4}), Tensor::zeros({3, 4, 5}));
        }).rfind("[matmul] sizes must be equal or 1, aligned at the last axis; got a=[2], b=[3]", 0) == 0);
  CHECK_THROWS_WITH_AS(matmul(b, transposed(b.to(DType::f64))),
                       doctest::Contains("[matmul] all operands must have one type"), DTypeError);
}

TEST_CASE("a product in f64 with a size that BLAS cannot take is refused, not cut to 32 bits") {
  constexpr Index kSize = (Index{1} << 31) + 3;
  double none = 0;  // refused before it is read
  const auto vector_of = [&](const Shape& shape) {
    const Handle<Storage> storage(
        new Storage(&none, static_cast<std::size_t>(kSize) * sizeof(double), [] {}));
    return Tensor::adopt(storage, shape, DType::f64);
  };
  CHECK_THROWS_WITH_AS(matmul(vector_of({1, kSize}), vector_of({kSize, 1})),
                       "[matmul] sizes of a product on BLAS, which computes all f64 products on the CPU, "
                       "must fit in 32 bits; got 2147483651; try f32, or parts of the tensors",
                       ShapeError);
}

TEST_CASE("values and gradients agree with PyTorch") {
  const Golden golden("ops");
  for (const char* name :
       {"matmul", "matmul_batched", "matmul_transpose_a", "matmul_transpose_b", "matmul_transpose_both",
        "matmul_shared_b", "matmul_broadcast", "matmul_broadcast_transpose_b"}) {
    const auto options = golden.options(name);
    const auto product = [&](const std::vector<Tensor>& x) {
      return matmul(factor(x[0], options["transpose_a"]), factor(x[1], options["transpose_b"]));
    };
    check_golden(golden, name, {"a", "b"}, product, 5e-15);
  }
}
