#include <doctest/doctest.h>
#include <omp.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape.h>
#include <tapeformer/tests/reference/golden.h>
#include <tapeformer/tests/reference/gradcheck_table.h>
#include <nlohmann/json.hpp>

#include <cmath>

using namespace tapeformer;

namespace {

/// `x` with the matrices in its last two axes, however the factor stores them.
Tensor plain(const Factor& factor) {
  Tensor x = factor.x;
  if (factor.by_head) {
    Axes order;
    for (int axis = 0; axis < x.rank(); ++axis) order.push_back(axis);
    std::swap(order[order.size() - 2], order[order.size() - 3]);
    x = permute(x, order);
  }
  return factor.transposed ? transpose(x) : x;
}

/// Plain double loops.
Tensor oracle(const Factor& left, const Factor& right, double scale = 1, bool output_by_head = false) {
  const Tensor a = plain(left), b = plain(right);
  const Index m = a.size(-2), k = a.size(-1), n = b.size(-1);
  const Shape batch_a(a.shape().begin(), a.rank() - 2), batch_b(b.shape().begin(), b.rank() - 2);
  const Shape batch = broadcast_shapes("oracle", batch_a, batch_b);
  const auto numbers = [](const Shape& shape) {
    return filled(shape, [](Index i) { return static_cast<double>(i); });
  };
  Shape shape = batch;
  shape.append(m);
  shape.append(n);
  const Tensor in_a = numbers(batch_a), in_b = numbers(batch_b);
  const Tensor y = filled(shape, [&](Index i) {
    const Index matrix = i / (m * n), row = i / n % m, column = i % n;
    const auto from_a = static_cast<Index>(broadcast_at(in_a, batch, matrix)) * m * k;
    const auto from_b = static_cast<Index>(broadcast_at(in_b, batch, matrix)) * k * n;
    double total = 0;
    for (Index j = 0; j < k; ++j) total += a.at(from_a + row * k + j) * b.at(from_b + j * n + column);
    return scale * total;
  });
  return output_by_head ? plain(by_head(y)) : y;
}

Factor factor(const Tensor& x, bool is_transposed, bool is_by_head = false) {
  const Factor plain_or_by_head = is_by_head ? by_head(x) : Factor(x);
  return is_transposed ? transposed(plain_or_by_head) : plain_or_by_head;
}

GradcheckOptions both_orders(Index most_elements = 0) {
  GradcheckOptions options;
  options.second_order = true;
  options.most_elements = most_elements;
  return options;
}

}  // namespace

TEST_SUITE("autograd/ops/matmul") {
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
    Generator random(1);
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
          CHECK(relative_error(matmul(factor(a, transpose_a), factor(b, transpose_b), 0.3), expected) <
                1e-14);
          const Tensor a32 = a.to(DType::f32), b32 = b.to(DType::f32);
          CHECK(relative_error(matmul(factor(a32, transpose_a), factor(b32, transpose_b), 0.3), expected) <
                2e-6);
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
    Generator random(2);
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
          CHECK(relative_error(matmul(left, right, 1.5), oracle(left, right, 1.5)) < 1e-14);
          check_gradients("matmul", gradcheck([&] { return matmul(left, right, 1.5); }, {{"a", a}, {"b", b}},
                                              both_orders(12)));
        }
      }
    }
  }

  TEST_CASE("factors and outputs by head are read and written in place, in every combination") {
    Generator random(3);
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
      CHECK(relative_error(y, oracle(left, right, 0.7, head_y)) < 1e-14);
      check_gradients("matmul by head", gradcheck([&] { return matmul(left, right, 0.7, head_y); },
                                                  {{"a", a}, {"b", b}}, both_orders(12)));
    }
  }

  TEST_CASE("heads broadcast: one key head for several query heads") {
    Generator random(4);
    const Tensor query = random_normal({2, 4, 3, 5}, random), key = random_normal({2, 6, 1, 5}, random);
    const auto scores = [&] { return matmul(by_head(query), transposed(by_head(key))); };
    CHECK(relative_error(scores(), oracle(by_head(query), transposed(by_head(key)))) < 1e-14);
    check_gradients("matmul by head", gradcheck(scores, {{"query", query}, {"key", key}}, both_orders(12)));
  }

  TEST_CASE("a tensor multiplied by itself gets both gradients") {
    Generator random(5);
    const Tensor x = random_normal({3, 4, 4}, random);
    check_gradients("matmul", gradcheck([&] { return matmul(x, transposed(x)); }, {{"x", x}}, both_orders()));
    check_gradients("matmul", gradcheck([&] { return matmul(x, x); }, {{"x", x}}, both_orders()));
  }

  TEST_CASE("many small products share the threads and give what one thread gives") {
    Generator random(6);
    const Tensor a = random_normal({64, 9, 33}, random), b = random_normal({64, 33, 17}, random);
    const Tensor expected = oracle(a, b);
    const int most = omp_get_max_threads();
    for (const int threads : {1, 2, 3}) {
      omp_set_num_threads(threads);
      CHECK(relative_error(matmul(a, b), expected) < 1e-14);
      CHECK(relative_error(matmul(a.to(DType::f32), b.to(DType::f32)), expected) < 2e-6);
    }
    omp_set_num_threads(most);
  }

  TEST_CASE("errors name the rule and the factors") {
    const Tensor a = Tensor::zeros({2, 8, 64}), b = Tensor::zeros({32, 64});
    CHECK(message_of<ShapeError>([&] { return matmul(a, b); }) ==
          "[matmul] inner sizes must match; got a=f32[2,8,64], b=f32[32,64] (64 != 32); try transposed(b)");
    CHECK(
        message_of<ShapeError>([&] {
          return matmul(by_head(a), transposed(Tensor::zeros({32, 60})));
        }) ==
        "[matmul] inner sizes must match; got a=f32[2,8,64] by head, b=f32[32,60] transposed (64 != 60); try "
        "transposed(b)");
    CHECK(message_of<ShapeError>([&] { return matmul(Tensor::zeros({3}), b); }) ==
          "[matmul] a factor must have at least two axes; got [3]; try reshape");
    CHECK(message_of<ShapeError>([&] { return matmul(by_head(b), b); }) ==
          "[matmul] a factor must have at least three axes; got [32,64]; try reshape");
    CHECK(message_of<ShapeError>([&] { return matmul(b, transposed(b), 1, true); }) ==
          "[matmul] an output by head needs a head axis; got a=f32[32,64]");
    CHECK(message_of<ShapeError>([&] {
            return matmul(Tensor::zeros({2, 3, 4}), Tensor::zeros({3, 4, 5}));
          }).rfind("[matmul] sizes must be equal or 1, aligned at the last axis; got a=[2], b=[3]", 0) == 0);
    CHECK(message_of<DTypeError>([&] {
            return matmul(b, transposed(b.to(DType::f64)));
          }).rfind("[matmul] all operands must have one type", 0) == 0);
  }

  TEST_CASE("values and gradients agree with PyTorch") {
    const Golden golden("ops");
    for (const char* name :
         {"matmul", "matmul_batched", "matmul_transpose_a", "matmul_transpose_b", "matmul_transpose_both",
          "matmul_shared_b", "matmul_broadcast", "matmul_broadcast_transpose_b"}) {
      CAPTURE(std::string(name));
      const auto options = golden.options(name);
      const auto product = [&](const std::vector<Tensor>& x) {
        return matmul(factor(x[0], options["transpose_a"]), factor(x[1], options["transpose_b"]));
      };
      CHECK(golden_error(golden, name, {"a", "b"}, product) < 5e-15);
      CHECK(golden_error(golden, name, {"a", "b"}, product, DType::f32) < 1e-6);
    }
  }
}

TEST_SUITE("autograd/ops/linear") {
  TEST_CASE("an affine map with an activation, worked by hand") {
    const Parameter x(values({1, 2}, {1, 2})), weight(values({1, 1, 3, -4}, {2, 2})), bias(values({0.5, 1}));
    Tape tape;
    const Tensor y = linear(x, weight, bias, Unary::relu);
    CHECK(y.to_vector<double>() == std::vector<double>{3.5, 0});
    tape.backward(y, values({2, 2}, {1, 2}));
    CHECK(x.gradient().to_vector<double>() == std::vector<double>{2, 2});
    CHECK(weight.gradient().to_vector<double>() == std::vector<double>{2, 4, 0, 0});
    CHECK(bias.gradient().to_vector<double>() == std::vector<double>{2, 0});
  }

  TEST_CASE("it agrees with the same in plain operations, forward and backward, at every size") {
    Generator random(1);
    const Shape shapes[] = {{1, 1}, {5, 31}, {2, 3, 32}, {33}, {2, 257}, {0, 4}, {3, 0}, {257, 33}};
    for (const Shape& shape : shapes) {
      for (const std::optional<Unary> activation :
           {std::optional<Unary>(), {Unary::relu}, {Unary::gelu}, {Unary::tanh}, {Unary::silu}}) {
        for (const bool biased : {false, true}) {
          INFO(shape.text(), " ", biased, " ", activation.has_value());
          const Tensor x = random_normal(shape, random), weight = random_normal({7, shape[-1]}, random);
          const Tensor bias = biased ? random_normal({7}, random) : Tensor();
          Tape tape;
          std::vector<Tensor> inputs = {x, weight};
          if (biased) inputs.push_back(bias);
          for (const Tensor& input : inputs) tape.watch(input);
          const Tensor y = linear(x, weight, bias, activation);
          Tensor twin = reshape(
              matmul(reshape(x, {shape.elements(0, shape.rank() - 1), shape[-1]}), transposed(weight)),
              y.shape());
          if (biased) twin = twin + bias;
          if (activation) twin = unary(*activation, twin);
          CHECK(relative_error(y, twin) < 1e-14);
          const Tensor seed = random_normal(y.shape(), random);
          const std::vector<Tensor> got = tape.gradients(y, inputs, seed),
                                    expected = tape.gradients(twin, inputs, seed);
          for (std::size_t i = 0; i < inputs.size(); ++i) CHECK(relative_error(got[i], expected[i]) < 1e-13);
          if (shape.elements() > 0) {
            const Tensor single = linear(x.to(DType::f32), weight.to(DType::f32),
                                         biased ? bias.to(DType::f32) : Tensor(), activation);
            CHECK(relative_error(single, twin) < 2e-6);
          }
        }
      }
    }
  }

  TEST_CASE("it passes the gradient check with every activation, and so do its gradients") {
    Generator random(2);
    for (const Unary f :
         {Unary::exp, Unary::tanh, Unary::erf, Unary::sigmoid, Unary::gelu, Unary::gelu_tanh, Unary::silu}) {
      const Tensor x = random_normal({2, 3, 4}, random), weight = random_uniform({5, 4}, -0.5, 0.5, random),
                   bias = random_normal({5}, random);
      check_gradients("linear", gradcheck([&] { return linear(x, weight, bias, f); },
                                          {{"x", x}, {"weight", weight}, {"bias", bias}}, both_orders()));
    }
    const Tensor x = random_normal({3, 4}, random), weight = random_normal({5, 4}, random),
                 bias = random_normal({5}, random);
    check_gradients("linear", gradcheck([&] { return linear(x, weight, bias); },
                                        {{"x", x}, {"weight", weight}, {"bias", bias}}, both_orders()));
    check_gradients("linear", gradcheck([&] { return linear(x, weight); }, {{"x", x}, {"weight", weight}},
                                        both_orders()));
    // Signs that a small step cannot change keep relu away from its kink.
    const Tensor positive = random_uniform({3, 4}, 0.5, 1, random),
                 signs = values({1, 1, 1, 1, -1, -1, -1, -1}, {2, 4});
    check_gradients("linear", gradcheck([&] { return linear(positive, signs, {}, Unary::relu); },
                                        {{"x", positive}, {"weight", signs}}, both_orders()));
  }

  TEST_CASE("one tensor may be input, weight and more") {
    Generator random(3);
    const Tensor x = random_normal({4, 4}, random);
    check_gradients("linear",
                    gradcheck([&] { return linear(x, x, {}, Unary::tanh); }, {{"x", x}}, both_orders()));
    const Tensor row = random_normal({1}, random);
    check_gradients("linear",
                    gradcheck(
                        [&] {
                          return linear(reshape(row, {1, 1}), reshape(row, {1, 1}), row, Unary::gelu);
                        },
                        {{"x", row}}, both_orders()));
  }

  TEST_CASE("errors show all three operands") {
    const Tensor x = Tensor::zeros({2, 3}), weight = Tensor::zeros({4, 3});
    const std::string rule = "[linear] x [..., In], weight [Out, In] and bias [Out] must fit; got ";
    CHECK(message_of<ShapeError>([&] {
            return linear(Tensor::zeros({2, 4}), weight);
          }) == rule + "x=f32[2,4], weight=f32[4,3], bias=undefined");
    CHECK(message_of<ShapeError>([&] { return linear(x, weight, Tensor::zeros({3})); }) ==
          rule + "x=f32[2,3], weight=f32[4,3], bias=f32[3]");
    CHECK(message_of<ShapeError>([&] { return linear(x, x.alias({1, 2, 3})); }).rfind(rule, 0) == 0);
    CHECK(message_of<DTypeError>([&] {
            return linear(x, weight.to(DType::f64));
          }).rfind("[linear] all operands must have one type", 0) == 0);
  }

  TEST_CASE("values and gradients agree with PyTorch") {
    const Golden golden("ops");
    for (const char* name : {"linear", "linear_relu", "linear_gelu", "linear_gelu_tanh", "linear_no_bias"}) {
      CAPTURE(std::string(name));
      const std::string activation = golden.options(name)["activation"];
      const std::optional<Unary> f = activation == "relu"        ? std::optional(Unary::relu)
                                     : activation == "gelu"      ? std::optional(Unary::gelu)
                                     : activation == "gelu_tanh" ? std::optional(Unary::gelu_tanh)
                                                                 : std::nullopt;
      const bool biased = !golden.names(name, "in.bias").empty();
      const auto map = [&](const std::vector<Tensor>& x) {
        return linear(x[0], x[1], biased ? x[2] : Tensor(), f);
      };
      const std::vector<std::string> names =
          biased ? std::vector<std::string>{"x", "weight", "bias"} : std::vector<std::string>{"x", "weight"};
      CHECK(golden_error(golden, name, names, map) < 5e-15);
      CHECK(golden_error(golden, name, names, map, DType::f32) < 1e-6);
    }
  }

  TEST_CASE("few rows times a matrix of any size, on two threads, leave the threads as they were") {
    const int before = omp_get_max_threads();
    omp_set_num_threads(2);
    for (const Index rows : {1, 3, 4, 5}) {
      for (const Shape& sizes : {Shape{1, 7}, Shape{65, 128}, Shape{447, 447}, Shape{448, 449}}) {
        const Tensor x = filled({rows, sizes[1]},
                                [](Index i) { return static_cast<double>(i * 7 % 11) - 5; }),
                     weight = filled(sizes, [](Index i) { return static_cast<double>(i * 5 % 13) - 6; });
        INFO("x=", x.describe(), ", weight=", weight.describe());
        const Tensor expected = oracle(x, transposed(weight));  // of whole numbers, so exact
        CHECK(absolute_error(linear(x, weight), expected) == 0);
        CHECK(absolute_error(linear(x.to(DType::f32), weight.to(DType::f32)), expected) == 0);
        CHECK(omp_get_max_threads() == 2);
      }
    }
    omp_set_num_threads(before);
  }
}
