#include <doctest/doctest.h>
#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/activation_checkpointing.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/reference/support.h>

#include <string>
#include <vector>

using namespace tapeformer;

using Values = std::vector<double>;

namespace {

bool is(const char* op, const char* name) { return std::string(op) == name; }

}  // namespace

TEST_CASE("a kernel's backward writes a tensor that is two of its inputs into separate buffers") {
  // y = x x^T, so for L = sum(w * y): dx = (w + w^T) x.
  const Tensor data = values({1, 2, 3, 4}, {2, 2}), w = values({1, 10, 100, 1000}, {2, 2});
  const auto as_parameter = [&] {
    const Parameter x(data.clone());
    for (int pass = 0; pass < 2; ++pass) {
      Tape tape;
      tape.backward(linear(x, x), w);
    }
    return x.gradient();
  };
  CHECK(elements(as_parameter()) == Values{2 * 332, 2 * 444, 2 * 6110, 2 * 8220});
  Tape tape;
  const Tensor x = data.clone();
  tape.watch(x);
  const Tensor also = x * 1.0;
  CHECK(elements(tape.gradients(linear(x, x), {x}, w)[0]) == Values{332, 444, 6110, 8220});
  CHECK(elements(tape.gradients(linear(also, also) + also, {x}, w)[0]) == Values{333, 454, 6210, 9220});
  CHECK(elements(tape.gradients(linear(x, x), {x}, w, true)[0]) == Values{332, 444, 6110, 8220});
}

TEST_CASE("a kernel may take the buffers of all inputs at once and write them in any order") {
  // y = 3 a + 5 b, called with a = b.
  const auto both = [](const Tensor& a, const Tensor& b) {
    return record("both", {a, b}, {}, 3.0 * a.detach() + 5.0 * b.detach(),
                  [](const Tensor& dy, const Gradients& into) {
                    const GradientSlot::Target da = into[0].target(), db = into[1].target();
                    for (const auto& [target, factor] : {std::pair(db, 5), std::pair(da, 3)}) {
                      double* to = target.buffer.data<double>();
                      for (Index i = 0; i < dy.elements(); ++i) {
                        to[i] = (target.add ? to[i] : 0) + factor * dy.at(i);
                      }
                    }
                  });
  };
  const Parameter p(values({1, 1}));
  Tape tape;
  const Tensor x = p * 1.0;
  const Tensor y = record("one", {p, values({1})}, {}, p * 1.0, [](const Tensor&, const Gradients& into) {
    CHECK_FALSE(into[1].target().buffer.defined());
    into[2] += values({1, 1});
  });
  CHECK_THROWS_WITH_AS(tape.gradients(y, {p}, values({1, 1})),
                       "[one] into[i] must be an input that was recorded; got into[2] of 2 inputs",
                       TapeError);
  tape.backward(both(p, p) + both(x, x), values({1, 10}));
  CHECK(elements(p.gradient()) == Values{16, 160});
}

TEST_CASE("a parameter whose gradient could not be written has none") {
  const Parameter x(values({1, 2}).to(Device::cpu()));  // as this case's kernel is the host's
  for (const bool refused : {true, false}) {
    Tape tape;
    const Tensor y =
        record("twice", {x}, {}, 2.0 * x.value().detach(), [&](const Tensor& dy, const Gradients& into) {
          const Tensor operand = refused ? dy.to(DType::f32) : 2.0 * dy;
          dispatch("twice", operands(operand, into[0]), [&](auto, auto* from, auto to) {
            for (Index i = 0; i < 2; ++i) to.to[i] = from[i];
          });
        });
    if (refused) {
      CHECK_THROWS_AS(tape.backward(sum(y)), DTypeError);
      CHECK(!x.gradient().defined());
    } else {
      tape.backward(sum(y));
      CHECK(elements(x.gradient()) == Values{2, 2});
    }
  }
}

TEST_CASE("the gradient that one consumer received is not changed when the next one adds to it") {
  // add hands one buffer to both its inputs, which then accumulate further.
  const Tensor a = values({1, 2}), b = values({3, 4});
  Tape tape;
  tape.watch(a);
  tape.watch(b);
  const Tensor loss = sum((a + b) * values({1, 10})) + sum(a * values({5, 5})) + sum(b * values({7, 7}));
  const std::vector<Tensor> gradients = tape.gradients(loss, {a, b});
  CHECK(elements(gradients[0]) == Values{6, 15});
  CHECK(elements(gradients[1]) == Values{8, 17});
}

TEST_CASE("results of reshape, which share their input's elements, have gradients of their own") {
  const Parameter x(values({1, 2, 3, 4}, {2, 2}));
  Tape tape;
  tape.backward(sum(reshape(x, {4}) * values({1, 2, 3, 4})) + sum(x * x));
  CHECK(elements(x.gradient()) == Values{3, 6, 9, 12});
}

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
        return gradient;
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
