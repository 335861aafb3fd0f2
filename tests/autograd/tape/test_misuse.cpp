#include <doctest/doctest.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/reference/support.h>

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
        "mean(loss) or "
        "sum(loss)");
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
        "x=f64[1]; "
        "try tape.watch(x) before the forward pass");
  CHECK(message_of<ShapeError>([&] { tape.watch(Tensor()); }).rfind("[tensor] the tensor is undefined", 0) ==
        0);
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
    CHECK_THROWS_AS(tape.gradients(loss, {x}), Error);
    CHECK_THROWS_AS(tape.gradients(loss, {x}, {}, true), Error);
    CHECK(Tape::current() == &tape);
    CHECK(elements(tape.gradients(sum(x * x), {x})[0]) == Values{4, 6});
    CHECK_THROWS_AS(tape.backward(loss), Error);
    CHECK(Tape::current() == nullptr);
  }
  Parameter fresh(values({5}));
  Tape tape;
  tape.backward(fresh * fresh);
  CHECK(fresh.gradient().item() == 10);
}
