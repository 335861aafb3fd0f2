#include <doctest/doctest.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/reference/support.h>

#include <cmath>
#include <limits>

using namespace tapeformer;

TEST_CASE("anomaly mode names the operation that first gave a value that is not finite") {
  const Parameter x(values({1, 0}));
  Tape tape;
  tape.detect_anomalies();
  CHECK(message_of<TapeError>([&] { return exp(log(x)) * 2.0; }) ==
        "[log] forward gave the first value that is not finite: -inf at element 1 of f64[2]; try a lower "
        "learning rate, or look at this operation's inputs");
  tape.detect_anomalies(false);
  CHECK(log(x).at(1) == -INFINITY);
}

TEST_CASE("anomaly mode finds it in a parameter's gradient and in a recorded pass") {
  const Parameter x(values({0, 4}));
  Tape tape;
  tape.detect_anomalies();
  const Tensor y = sum(sqrt(x));
  CHECK(message_of<TapeError>([&] { tape.gradients(y, {x}, {}, true); }).rfind("[divide] forward gave", 0) ==
        0);
  CHECK(message_of<TapeError>([&] { tape.backward(y); }).rfind("[sqrt] backward gave", 0) == 0);
}

TEST_CASE("anomaly mode sees a NaN behind an infinity that is passed on") {
  const Parameter x(values({1, 1}));
  Tape tape;
  tape.detect_anomalies();
  const Tensor infinite = x * values({INFINITY, 1});  // given, and passed on
  CHECK(message_of<TapeError>([&] {
          return infinite + values({1, NAN});
        }).rfind("[add] forward gave the first value that is not finite: nan at element 1", 0) == 0);
}

TEST_CASE("anomaly mode lets the infinities of a mask pass, but not NaN made of them") {
  const Tensor x = Tensor::from<double>({1, 2, 3});
  const Tensor may = Tensor::from<bool>({true, false, true});
  const Tensor never = Tensor::scalar(-std::numeric_limits<double>::infinity(), DType::f64);
  Tape tape;
  tape.detect_anomalies();
  tape.watch(x);
  const Tensor scores = where(may, x, never);
  CHECK(sum(softmax(scores)).item() == doctest::Approx(1));
  CHECK_THROWS_AS(scores - scores, TapeError);  // infinity minus infinity
}
