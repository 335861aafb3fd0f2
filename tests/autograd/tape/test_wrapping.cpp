#include <doctest/doctest.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/reference/support.h>

#include <string>
#include <vector>

using namespace tapeformer;

namespace {

using Values = std::vector<double>;

Tensor unchanged(const Contribution&, const Tensor& gradient) { return gradient; }

bool is(const char* op, const char* name) { return std::string(op) == name; }

}  // namespace

TEST_CASE("the wrapper sees every contribution, in the order of the pass, in its input's shape") {
  const Parameter x(values({2, 3}));
  const Tensor row = values({5, 7, 11, 13}, {2, 2});
  Tape tape;
  std::vector<Contribution> seen;
  std::vector<Values> gradients;
  tape.wrap_gradients([&](const Contribution& contribution, const Tensor& gradient) {
    seen.push_back(contribution);
    gradients.push_back(gradient.to_vector<double>());
    return gradient;
  });
  tape.backward(sum(x * row + x));  // x is broadcast over the rows, and used twice
  REQUIRE(seen.size() == 4);
  CHECK(is(seen[0].op, "sum"));
  CHECK(is(seen[1].op, "add"));
  CHECK(is(seen[2].op, "add"));
  CHECK(is(seen[3].op, "multiply"));
  CHECK(seen[1].input == 0);
  CHECK(seen[2].input == 1);
  CHECK(seen[2].tensor == seen[3].tensor);
  CHECK(seen[1].tensor != seen[2].tensor);
  CHECK(seen[2].node == seen[1].node);
  CHECK(seen[3].node < seen[2].node);
  CHECK(gradients[2] == Values{2, 2});
  CHECK(gradients[3] == Values{16, 20});
  CHECK(x.gradient().to_vector<double>() == Values{18, 22});
}

TEST_CASE("a returned gradient is added, to parameters and to other values, and passed on") {
  const Parameter x(values({2, 3}));
  const auto doubled_products = [](const Contribution& contribution, const Tensor& gradient) {
    return is(contribution.op, "multiply") && contribution.input == 0 ? gradient * 2 : gradient;
  };
  Tape tape;
  tape.wrap_gradients(doubled_products);
  const Tensor square = x * x, y = sum(square * values({10, 100}));
  CHECK(tape.gradients(y, {square})[0].to_vector<double>() == Values{20, 200});
  tape.backward(y);
  CHECK(x.gradient().to_vector<double>() == Values{20 * 2 * 3, 200 * 3 * 3});
}

TEST_CASE("a wrapper that changes nothing leaves every bit of a fused operation's gradients") {
  Generator random(test_seed(1));
  const Tensor query = random_normal({2, 5, 4, 6}, random, DType::f64),
               key = random_normal({2, 7, 2, 6}, random, DType::f64),
               value = random_normal({2, 7, 2, 3}, random, DType::f64);
  const auto gradients = [&](bool wrapped) {
    Tape tape;
    std::size_t fused = 0;
    if (wrapped) {
      tape.wrap_gradients([&](const Contribution& contribution, const Tensor& gradient) {
        fused += is(contribution.op, "softmax") ? 1 : 0;
        return unchanged(contribution, gradient);
      });
    }
    for (const Tensor& x : {query, key, value}) tape.watch(x);
    const Tensor y = softmax(query) + softmax(query * 2);
    const auto result = tape.gradients(sum(y * y) + sum(softmax(key) * value.at(0)), {query, key});
    CHECK(fused == (wrapped ? 3 : 0));
    return result;
  };
  const auto plain = gradients(false), wrapped = gradients(true);
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(absolute_error(plain[i], wrapped[i]) == 0);
}

TEST_CASE("in a recorded pass the changed gradients are differentiated") {
  const Tensor x = values({3});
  Tape tape;
  tape.watch(x);
  bool recorded = true;
  tape.wrap_gradients([&](const Contribution& contribution, const Tensor& gradient) {
    recorded = recorded && contribution.recorded;
    return contribution.recorded ? gradient * 2 : gradient;
  });
  const Tensor slope = tape.gradients(x * x, {x}, {}, true)[0];
  CHECK(recorded);
  CHECK(slope.item() == 12);                         // 2 * 2 x
  CHECK(tape.gradients(slope, {x})[0].item() == 4);  // of 4 x
  CHECK(!recorded);
}

TEST_CASE("a wrapper that loses the shape is refused") {
  const Tensor x = values({3, 4});
  Tape tape;
  tape.watch(x);
  tape.wrap_gradients([](const Contribution&, const Tensor&) { return values({1}); });
  CHECK(message_of<ShapeError>([&] { tape.gradients(sum(x * x), {x}); }) ==
        "[sum] a wrapped gradient must keep its shape [2]; got wrapped=f64[1]");
}
