#include <doctest/doctest.h>
#include <tapeformer/autograd/draws.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/tape/activation_checkpointing.h>
#include <tapeformer/tests/reference/support.h>

#include <cmath>
#include <functional>

using namespace tapeformer;

using Values = std::vector<double>;

TEST_CASE("a second backward is refused") {
  const Parameter x(values({2}));
  Tape tape;
  const Tensor loss = x * x;
  tape.backward(loss);
  CHECK(message_of<TapeError>([&] { tape.backward(loss); }) ==
        "[backward] the tape is spent: backward frees what it used; try gradients() for several passes, or a "
        "new Tape for the next step");
  CHECK(message_of<TapeError>([&] { tape.gradients(loss, {x}); }).rfind("[gradients] the tape is spent", 0) ==
        0);
  CHECK(x.gradient().item() == 4);
}

TEST_CASE("a loss with several elements needs a seed, and a seed the loss's shape") {
  const Parameter x(values({2, 3}));
  Tape tape;
  const Tensor y = x * x;
  CHECK(message_of<TapeError>([&] { tape.backward(y); }) ==
        "[backward] a loss with several elements needs a seed of its shape; got loss=f64[2]; try "
        "mean(loss) or sum(loss)");
  CHECK(message_of<ShapeError>([&] { tape.backward(y, values({1})); }) ==
        "[backward] the seed must have the loss's shape; got loss=f64[2], seed=f64[1]");
  tape.backward(y, values({1, 1}));  // refused calls have not spent the tape
  CHECK(elements(x.gradient()) == Values{4, 6});
}

TEST_CASE("a loss that is not on the tape is refused") {
  const Parameter x(values({2}));
  const Tensor before = x * x;
  Tape tape;
  const std::string expected =
      "[backward] the loss does not depend on any parameter or watched tensor of this tape; got loss=";
  const std::string remedy = "; try constructing the Tape before the forward pass";
  CHECK(message_of<TapeError>([&] { tape.backward(before); }) == expected + "f64[1]" + remedy);
  CHECK(message_of<TapeError>([&] { tape.backward(Tensor()); }) == expected + "undefined" + remedy);
}

TEST_CASE("tensors of a dead or an outer tape are refused, and detach() is the remedy") {
  const Parameter x(values({2}));
  Tensor dead;
  {
    Tape tape;
    dead = x * x;
  }
  Tape outer;
  const Tensor outside = x * x;
  Tape inner;
  const std::string expected =
      "[add] an input was computed on another tape (ended, outer, or of another thread); got x=f64[1]; try "
      "detach(), or watch() on this tape";
  CHECK(message_of<TapeError>([&] { return x + dead; }) == expected);
  CHECK(message_of<TapeError>([&] { return outside + x; }) == expected);
  inner.backward(x * dead.detach() * outside.detach());
  CHECK(x.gradient().item() == 16);
  const NoGradGuard pause;
  CHECK((x + dead).item() == 6);  // unrecorded operations take any tensor
}

TEST_CASE("gradients of tensors that the tape does not track are refused") {
  const Parameter x(values({2}));
  Tape tape;
  const Tensor loss = x * x;
  CHECK(message_of<TapeError>([&] { tape.gradients(loss, {values({1})}); }) ==
        "[gradients] the tensor must be a parameter, or watched by this tape, or computed on it; got "
        "x=f64[1]; try tape.watch(x) before the forward pass");
  CHECK(message_of<ShapeError>([&] { tape.watch(Tensor()); }).rfind("[tensor] the tensor is undefined", 0) ==
        0);
  const auto reverse = [](const Tensor& dy, const Gradients& into) { into[0] += -dy; };
  CHECK(message_of<TapeError>([&] { record("reverse", {x}, {}, x, reverse); }) ==
        "[reverse] the output must not be a parameter or watched; got y=f64[1]; try detach()");
}

TEST_CASE("a recorded pass of a tape that does not record is refused") {
  const Parameter x(values({2}));
  Tape tape;
  const Tensor loss = x * x;
  const NoGradGuard pause;
  CHECK(message_of<TapeError>([&] {
          tape.gradients(loss, {x}, {}, true);
        }).rfind("[gradients] a recorded pass needs the tape that records now", 0) == 0);
  CHECK(tape.gradients(loss, {x})[0].item() == 4);
}

TEST_CASE("an exception in an operation or a backward leaves the thread and the tape usable") {
  const Parameter x(values({2, 3}));
  {
    Tape tape;
    CHECK_THROWS_AS(x + values({1, 2, 3}), ShapeError);
    const Tensor y = record("broken", {x}, {}, x * 2.0, [](const Tensor&, const Gradients& into) {
      into[0] += Tensor::full({2}, 100, DType::f64);
      throw Error("broken");
    });
    const Tensor loss = sum(y) + sum(x * x);
    CHECK_THROWS_WITH_AS(tape.gradients(loss, {x}), "broken", Error);
    CHECK_THROWS_WITH_AS(tape.gradients(loss, {x}, {}, true), "broken", Error);
    CHECK(Tape::current() == &tape);
    CHECK(elements(tape.gradients(sum(x * x), {x})[0]) == Values{4, 6});
    CHECK_THROWS_WITH_AS(tape.backward(loss), "broken", Error);
    CHECK(Tape::current() == nullptr);
  }
  Parameter fresh(values({5}));
  Tape tape;
  tape.backward(fresh * fresh);
  CHECK(fresh.gradient().item() == 10);
}

TEST_CASE("intermediate results of a body cannot be used outside") {
  const Parameter a(values({2}));
  Tape tape;
  Tensor leaked;
  const Tensor y = checkpoint({}, [&] {
    leaked = a * 2.0;
    return exp(leaked);
  });
  const std::string expected =
      "an input was computed inside a body that is recomputed, which keeps its result only; got x=f64[1]; "
      "try returning it from the body, or detach()";
  CHECK(message_of<TapeError>([&] { return leaked + y; }) == "[add] " + expected);
  CHECK(message_of<TapeError>([&] { tape.gradients(y, {leaked}); }) == "[gradients] " + expected);
  CHECK(message_of<TapeError>([&] { return checkpoint({}, [&] { return leaked; }) * 1.0; }) ==
        "[affine] " + expected);
  CHECK((leaked.detach() + y).item() == doctest::Approx(4 + std::exp(4)));
  tape.gradients(y, {a});  // runs the body again
  CHECK(message_of<TapeError>([&] { return leaked + y; }) == "[add] " + expected);
  CHECK(message_of<TapeError>([&] { tape.backward(leaked); }) == "[backward] " + expected);
  tape.backward(y);
  CHECK(a.gradient().item() == doctest::Approx(2 * std::exp(4)));
}

TEST_CASE("passes over a body, one after the other, leave nothing on the tape") {
  const Parameter a(values({2, 3})), b(values({4, 5}));
  Tape tape;
  const Tensor y = sum(checkpoint({}, [&] { return exp(a * b) * a + b; }));
  const std::vector<double> first = tape.gradients(y, {a})[0].to_vector<double>();
  const PoolStatistics before = pool_statistics();
  for (int pass = 0; pass < 1000; ++pass) tape.gradients(y, {a, b});
  CHECK(pool_statistics().in_use_bytes == before.in_use_bytes);
  CHECK(tape.gradients(y, {a})[0].to_vector<double>() == first);
}

TEST_CASE("a body cannot go back over its own tape, but over a tape of its own") {
  const Parameter a(values({2}));
  Tape tape;
  const auto refused = [&](const std::function<void(const Tensor&)>& action) {
    return message_of<TapeError>([&] {
      checkpoint({}, [&] {
        const Tensor y = a * a;
        action(y);
        return y;
      });
    });
  };
  const std::string expected =
      "the operations of a checkpointed body are not kept, so its tape cannot go back over them; try a "
      "Tape of its own inside the body";
  CHECK(refused([&](const Tensor& y) { tape.gradients(y, {a}); }) == "[gradients] " + expected);
  CHECK(refused([&](const Tensor& y) { tape.backward(y); }) == "[backward] " + expected);
  tape.backward(a * 3.0);  // as if nothing had happened
  CHECK(a.gradient().item() == 3);
}

TEST_CASE("a body that does not compute the same again is refused") {
  const Parameter a(values({2, 3}));
  Generator random(test_seed(1));
  int draws = 2, width = 2;
  Tape tape;
  const Tensor y = checkpoint({}, [&] {
    double factor = 1;
    for (int i = 0; i < draws; ++i) factor += random.normal();
    return width == 2 ? a * factor : sum(a * factor);
  });
  const auto refusal = [&] { return message_of<TapeError>([&] { tape.gradients(sum(y), {a}); }); };
  const std::string rule = "[checkpoint] the body must compute the same again; ",
                    remedy = "; try changing modes and weights after the reverse pass";
  draws = 3;
  CHECK(refusal() == rule + "it drew 2 numbers at first, and now more" + remedy);
  draws = 1;
  CHECK(refusal() == rule + "it drew 2 numbers at first, and now 1" + remedy);
  draws = 2, width = 1;
  CHECK(refusal() == rule + "its result had the shape [2] at first, and now is f64[]" + remedy);
  width = 2;
  CHECK(refusal() == "nothing was thrown");
  CHECK(tape.memory().nodes == 5);
  CHECK(Tape::current() == &tape);
}

TEST_CASE("an exception in a body leaves thread and tape usable") {
  const Parameter a(values({2}));
  bool breaks = true;
  const auto body = [&] {
    const Tensor y = a * a;
    if (breaks) throw Error("broken");
    return y;
  };
  {
    Tape tape;
    CHECK_THROWS_WITH_AS(checkpoint({}, body), "broken", Error);
    breaks = false;
    const Tensor y = checkpoint({}, body);
    CHECK(tape.memory().nodes == 1);
    breaks = true;
    CHECK_THROWS_WITH_AS(tape.gradients(y, {a}), "broken", Error);
    CHECK(tape.memory().nodes == 1);
    CHECK(Tape::current() == &tape);
    breaks = false;
    CHECK(tape.gradients(y, {a})[0].item() == 4);
    breaks = true;
    CHECK_THROWS_WITH_AS(tape.backward(y), "broken", Error);
    CHECK(Tape::current() == nullptr);
  }
  CHECK(drawn([] { return std::uint64_t{7}; }) == 7);
}
