#include <doctest/doctest.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/activation_checkpointing.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/reference/support.h>

#include <cmath>
#include <thread>

using namespace tapeformer;

using Values = std::vector<double>;

TEST_CASE("backward fills the gradients of the parameters that took part") {
  const Parameter x(values({2, 3})), y(values({5, 7})), unused(values({1}));
  Tape tape;
  const Tensor loss = sum(x * y + x);
  CHECK(loss.item() == 36);
  tape.backward(loss);
  CHECK(elements(x.gradient()) == Values{6, 8});
  CHECK(elements(y.gradient()) == Values{2, 3});
  CHECK(!unused.gradient().defined());
}

TEST_CASE("a parameter's gradient is handed over as soon as it is final") {
  const Parameter first(values({2, 3})), twice(values({5, 7})), last(values({1, 4})), unused(values({1}));
  Tape tape;
  const Tensor loss = sum((first * twice + twice) * last);
  std::vector<std::pair<ParameterState*, Values>> handed;
  tape.on_final_gradient([&](ParameterState& parameter) {
    handed.emplace_back(&parameter, parameter.gradient.to_vector<double>());
  });
  tape.backward(loss);
  REQUIRE(handed.size() == 3);
  CHECK(handed[0].first == last.state());
  for (const auto& [parameter, gradient] : handed) CHECK(gradient == elements(parameter->gradient));
  CHECK(handed[1].first != handed[2].first);
}

TEST_CASE("a gradient is final before the pass reaches what comes before its parameter's first use") {
  const Parameter early(values({2})), late(values({3}));
  Tape tape;
  const Tensor loss = exp(early * early) * late;
  std::vector<bool> early_had_one;
  tape.on_final_gradient([&](ParameterState&) { early_had_one.push_back(early.gradient().defined()); });
  tape.backward(loss);
  CHECK(early_had_one == std::vector<bool>{false, true});
}

TEST_CASE("a gradient is final when the earliest of the checkpointed bodies that use it has run") {
  const Parameter shared(values({2})), inner(values({3}));
  const Tensor x = values({1});
  Tape tape;
  tape.watch(x);
  const auto body = [&](const Tensor& at) { return checkpoint({at}, [=] { return at * shared * inner; }); };
  const Tensor loss = body(body(x)) * shared;
  std::vector<std::pair<ParameterState*, Values>> handed;
  tape.on_final_gradient([&](ParameterState& parameter) {
    handed.emplace_back(&parameter, parameter.gradient.to_vector<double>());
  });
  tape.backward(loss);
  REQUIRE(handed.size() == 2);  // x shared^3 inner^2
  for (const auto& [parameter, gradient] : handed)
    CHECK(gradient == (parameter == shared.state() ? Values{108} : Values{48}));
}

TEST_CASE("a gradient is final when the first use of all values that its parameter has had has run") {
  Parameter changed(values({2}));
  Tape tape;
  const Tensor square = changed * changed;
  changed.set_value(values({3}));
  std::vector<Values> handed;
  tape.on_final_gradient(
      [&](ParameterState& parameter) { handed.push_back(parameter.gradient.to_vector<double>()); });
  tape.backward(square * changed);
  REQUIRE(handed.size() == 1);
  CHECK(handed[0] == Values{16});  // 2 * 2 * 3 + 4
}

TEST_CASE("nothing is recorded without a tape, during a pause, and after backward in the tape's scope") {
  CHECK(Tape::current() == nullptr);
  const Parameter x(values({2}));
  const Tensor before = x * x;
  Tape tape;
  CHECK(Tape::current() == &tape);
  CHECK(!tape.tracks(before));
  const Tensor y = x * x;
  {
    const NoGradGuard pause;
    CHECK(Tape::current() == nullptr);
    CHECK(!tape.tracks(y * y));
  }
  CHECK(Tape::current() == &tape);
  CHECK(tape.memory().nodes == 1);
  tape.backward(y);
  CHECK(x.gradient().item() == 4);
  CHECK(Tape::current() == nullptr);
  CHECK(!tape.tracks(x * x));
  CHECK(tape.memory().nodes == 0);
}

TEST_CASE("gradients accumulate over backward passes until they are cleared") {
  Parameter x(values({2, 3}));
  const auto pass = [&] {
    Tape tape;
    tape.backward(sum(x * x));
  };
  pass();
  const double* buffer = x.gradient().data<double>();
  pass();
  CHECK(elements(x.gradient()) == Values{8, 12});
  x.clear_gradient();
  CHECK(!x.gradient().defined());
  pass();
  CHECK(elements(x.gradient()) == Values{4, 6});
  CHECK(x.gradient().data<double>() == buffer);
}

TEST_CASE("the seed and a parameter's gradient never share memory") {
  const Parameter x(values({2, 3}));
  const Tensor seed = values({1, 1});
  Tape tape;
  tape.backward(x + values({0, 0}), seed);
  CHECK(x.gradient().data<double>() != seed.data<double>());
  Tape second;
  second.backward(x + values({0, 0}), seed);
  CHECK(elements(seed) == Values{1, 1});
  CHECK(elements(x.gradient()) == Values{2, 2});
}

TEST_CASE("frozen parameters are constants, unless they are watched") {
  Parameter x(values({2})), frozen(values({3}));
  frozen.set_trainable(false);
  {
    Tape tape;
    tape.backward(x * frozen);
  }
  CHECK(x.gradient().item() == 3);
  CHECK(!frozen.gradient().defined());
  Tape tape;
  CHECK(message_of<TapeError>([&] {
          const Tensor loss = x * frozen;
          tape.gradients(loss, {frozen});
        }) ==
        "[gradients] the parameter is frozen; got x=f64[1]; try set_trainable(true), or tape.watch(x) "
        "before the forward pass");
  tape.watch(frozen);
  CHECK(tape.gradients(x * frozen, {frozen})[0].item() == 2);
}

TEST_CASE("any tensor's gradient on request; parameters' own stay as they are and nothing is freed") {
  const Parameter p(values({2, 3}));
  const Tensor x = values({5, 7});
  Tape tape;
  tape.watch(x);
  const Tensor product = p * x, loss = sum(product * product);
  const Index saved = tape.memory().saved_bytes;
  for (int pass = 0; pass < 2; ++pass) {
    const std::vector<Tensor> gradients = tape.gradients(loss, {x, p, product, loss});
    CHECK(elements(gradients[0]) == Values{40, 126});
    CHECK(elements(gradients[1]) == Values{100, 294});
    CHECK(elements(gradients[2]) == Values{20, 42});
    CHECK(gradients[3].item() == 1);
    CHECK(!p.gradient().defined());
    CHECK(tape.memory().saved_bytes == saved);
  }
  tape.backward(loss);
  CHECK(elements(p.gradient()) == Values{100, 294});
}

TEST_CASE("a tensor that the loss does not depend on has a gradient of zeros") {
  const Parameter x(values({2})), unused(values({3, 4}));
  const Tensor watched = values({1, 2, 3});
  Tape tape;
  tape.watch(watched);
  const std::vector<Tensor> gradients = tape.gradients(x * x, {unused, watched});
  CHECK(elements(gradients[0]) == Values{0, 0});
  CHECK(elements(gradients[1]) == Values{0, 0, 0});
}

TEST_CASE("recorded passes give second and third derivatives") {
  // f = x^3 e^x: f' = (x^3 + 3 x^2) e^x, f'' = (x^3 + 6 x^2 + 6 x) e^x,
  // f''' = (x^3 + 9 x^2 + 18 x + 6) e^x.
  const Tensor x = values({0.7, -1.3});
  Tape tape;
  tape.watch(x);
  const Tensor first = tape.gradients(sum(pow(x, 3) * exp(x)), {x}, {}, true)[0];
  const Tensor second = tape.gradients(sum(first), {x}, {}, true)[0];
  const Tensor third = tape.gradients(sum(second), {x})[0];
  for (Index i = 0; i < 2; ++i) {
    const double v = x.at(i), e = std::exp(v);
    CHECK_BELOW(deviation(first.at(i), (v * v * v + 3 * v * v) * e), 1e-13);
    CHECK_BELOW(deviation(second.at(i), (v * v * v + 6 * v * v + 6 * v) * e), 1e-13);
    CHECK_BELOW(deviation(third.at(i), (v * v * v + 9 * v * v + 18 * v + 6) * e), 1e-13);
  }
}

TEST_CASE("a recorded pass can be part of a loss that is then trained on") {
  // |d (p^3) / dp|^2 = 9 p^4, whose derivative is 36 p^3.
  const Parameter p(values({2}));
  Tape tape;
  const Tensor slope = tape.gradients(pow(p, 3), {p}, {}, true)[0];
  CHECK(slope.item() == 12);
  tape.backward(slope * slope);
  CHECK(p.gradient().item() == doctest::Approx(36 * 8));
}

TEST_CASE("an operation that returns its own input records nothing") {
  const Parameter x(values({1, 2}));
  Tape tape;
  const Tensor same = slice(broadcast_to(x, {2}), 0, 0, 2);
  CHECK(tape.memory().nodes == 0);
  tape.backward(sum(same * same));
  CHECK(elements(x.gradient()) == Values{2, 4});
}

TEST_CASE("a hundred thousand operations in a row need no stack") {
  const Parameter x(values({1}));
  Tape tape;
  Tensor y = x;
  for (int i = 0; i < 100000; ++i) y = y + 1e-5;
  CHECK(tape.memory().nodes == 100000);
  tape.backward(y * y);
  CHECK(x.gradient().item() == doctest::Approx(4));
}

TEST_CASE("inner tapes record; the outer one continues when they end") {
  const Parameter x(values({3}));
  Tape outer;
  const Tensor before = x * x;
  {
    Tape inner;
    CHECK(Tape::current() == &inner);
    CHECK(inner.gradients(x * x * x, {x})[0].item() == 27);
    inner.backward(x * 2.0);
    CHECK(Tape::current() == &outer);
  }
  CHECK(x.gradient().item() == 2);
  CHECK(Tape::current() == &outer);
  const Tensor loss = before + x;
  CHECK(outer.gradients(loss, {x})[0].item() == 7);
  outer.backward(loss);
  CHECK(x.gradient().item() == 9);
  CHECK(Tape::current() == nullptr);
}

TEST_CASE("an outer tape that first sees a parameter in a reverse pass leaves an inner tape its own") {
  const Parameter a(values({3}));
  Tape outer;
  const Tensor x = values({2});
  outer.watch(x);
  const Tensor y = checkpoint({x}, [&] { return a * x; });
  Tape inner;
  const Tensor z = a * 5.0 + checkpoint({}, [&] { return a * 2.0; });
  CHECK(elements(outer.gradients(y, {x})[0]) == Values{3});
  CHECK(elements(inner.gradients(z, {a})[0]) == Values{7});
  CHECK(elements(outer.gradients(y, {a})[0]) == Values{2});
}

TEST_CASE("tapes may end in any order") {
  auto outer = std::make_unique<Tape>();
  auto inner = std::make_unique<Tape>();
  outer.reset();
  CHECK(Tape::current() == inner.get());
  auto pause = std::make_unique<NoGradGuard>();
  inner.reset();
  pause.reset();
  CHECK(Tape::current() == nullptr);
}

TEST_CASE("each thread has its own tape") {
  const Tensor shared = values({2});
  Tape tape;
  tape.watch(shared);
  const Tensor mine = shared * shared;
  std::string message;
  std::thread([&] {
    CHECK(Tape::current() == nullptr);
    const Parameter x(values({3}));
    Tape other;
    other.backward(x * x);
    CHECK(x.gradient().item() == 6);
    Tape another;
    message = message_of<TapeError>([&] { return mine * x; });
  }).join();
  CHECK(message.find("[multiply] an input was computed on another tape") == 0);
  CHECK(tape.gradients(mine, {shared})[0].item() == 4);
}
