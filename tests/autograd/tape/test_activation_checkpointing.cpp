#include <doctest/doctest.h>
#include <tapeformer/autograd/draws.h>
#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/autograd/ops/dropout.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tape/activation_checkpointing.h>
#include <tapeformer/tests/reference/check_gradients.h>
#include <tapeformer/tests/reference/support.h>

#include <cstring>
#include <sstream>
#include <thread>

using namespace tapeformer;

namespace {

using Values = std::vector<double>;
bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.bytes())) == 0;
}

/// body(), recomputed or not.
template <class F>
Tensor maybe(bool recompute, Tensors inputs, const F& body) {
  return recompute ? checkpoint(inputs, body) : body();
}

/// Two layers that also read a memory, with residuals, dropout and a shared weight: each way in which
/// gradients meet.
struct Stack {
  explicit Stack(DType type) {
    Generator draws(test_seed(3));
    const auto parameter = [&](const Shape& shape) { return Parameter(random_normal(shape, draws, type)); };
    shared = parameter({33, 33}), gain = parameter({33}), bias = parameter({33});
    for (Parameter& weight : own) weight = parameter({33, 33});
    x = random_normal({5, 33}, draws, type), memory = random_normal({7, 33}, draws, type);
  }

  Tensor layer(int i, const Tensor& h, bool drops) const {
    const Tensor normed = layer_norm(h, gain, bias, 1e-5);
    const Tensor scores = matmul(linear(normed, own[i], bias), transposed(memory));
    Tensor read = linear(matmul(softmax(scores), memory), shared, {}, Unary::gelu);
    if (drops) read = dropout(read, 0.3, {1, 2, drawn([this] { return step++; })});
    return h + read * read;
  }

  Tensor run(bool recompute, bool drops = true) const {
    Tensor h = x * 0.5;
    for (int i = 0; i < 2; ++i)
      h = maybe(recompute, {h, memory}, [this, i, h, drops] { return layer(i, h, drops); });
    return mean(h * h);
  }

  std::vector<Parameter> parameters() const { return {shared, gain, bias, own[0], own[1]}; }

  Parameter shared, gain, bias, own[2];
  Tensor x, memory;
  mutable std::uint64_t step = 0;
};

}  // namespace

TEST_CASE("a body that is recomputed gives its value and its gradient, and leaves one node") {
  const Parameter a(values({2, 3}));
  const Tensor x = values({5, 7});
  int runs = 0;
  Tape tape;
  tape.watch(x);
  const Tensor y = checkpoint({x}, [&, x] {
    ++runs;
    return a * x * x;
  });
  CHECK(elements(y) == Values{50, 147});
  CHECK(runs == 1);
  CHECK(tape.memory().nodes == 1);
  CHECK(tape.memory().saved_bytes == 16);
  std::ostringstream text;
  tape.print(text);
  CHECK(text.str() == "%2 f64[2] = checkpoint(%0)  saves 16 bytes\n");
  CHECK(elements(tape.gradients(sum(y), {x})[0]) == Values{20, 42});
  CHECK(runs == 2);
  const auto both = tape.gradients(sum(y), {a, x});
  CHECK(elements(both[0]) == Values{25, 49});
  CHECK(elements(both[1]) == Values{20, 42});
  CHECK(tape.memory().nodes == 3);  // the body's and two sums: passes leave nothing
  tape.backward(sum(y));
  CHECK(elements(a.gradient()) == Values{25, 49});
  CHECK(runs == 4);
  CHECK(message_of<TapeError>([&] { tape.backward(y); }).find("[backward] the tape is spent") == 0);
}

TEST_CASE("losses, gradients and draws are the same to the last bit, in every kind of pass") {
  for (const DType type : {DType::f32, DType::f64}) {
    INFO(name_of(type));
    const Stack plain(type), stack(type);
    for (int batch = 0; batch < 2; ++batch) {  // the second is added to the first
      Tensor losses[2];
      for (const bool recompute : {false, true}) {
        const Stack& s = recompute ? stack : plain;
        Tape tape;
        tape.watch(s.memory);
        losses[recompute] = s.run(recompute);
        tape.backward(losses[recompute]);
      }
      CHECK(same_bits(losses[0], losses[1]));
      for (std::size_t i = 0; i < plain.parameters().size(); ++i)
        CHECK(same_bits(plain.parameters()[i].gradient(), stack.parameters()[i].gradient()));
    }
    CHECK(plain.step == 4);
    CHECK(stack.step == 4);

    std::vector<Tensor> gradients[4];
    for (int way = 0; way < 4; ++way) {
      const Stack s(type);
      Tape tape;
      for (const Tensor& x : {s.x, s.memory}) tape.watch(x);
      if (way == 3) tape.wrap_gradients([](const Contribution&, const Tensor& gradient) { return gradient; });
      const Tensor loss = s.run(way > 0);
      const std::vector<Tensor> of = {s.x, s.memory, s.shared, s.own[0], s.own[1], s.gain};
      gradients[way] = tape.gradients(loss, of);
      if (way == 2) gradients[way] = tape.gradients(loss, of);  // once more
    }
    for (std::size_t i = 0; i < gradients[0].size(); ++i) {
      CHECK(same_bits(gradients[0][i], gradients[1][i]));
      CHECK(same_bits(gradients[0][i], gradients[2][i]));
      CHECK_BELOW(relative_error(gradients[0][i], gradients[3][i]), type == DType::f64 ? 1e-14 : 1e-6);
    }
  }
}

TEST_CASE("first and second derivatives agree with differences") {
  Generator random(test_seed(5));
  const Tensor x = random_normal({3, 4}, random), weight = random_normal({4, 4}, random);
  GradcheckOptions options;
  options.second_order = true;
  const auto inner = [=](const Tensor& h) { return softmax(linear(h, weight, {}, Unary::gelu)) * h; };
  check_gradients("checkpoint, nested", gradcheck(
                                            [&] {
                                              return checkpoint({x}, [=] {
                                                const Tensor h = checkpoint({x}, [=] { return inner(x); });
                                                return inner(h) + checkpoint({h}, [=] { return exp(h); });
                                              });
                                            },
                                            {{"x", x}, {"weight", weight}}, options));
}

TEST_CASE("generators are drawn from once, nested bodies and pauses included") {
  const Parameter a(values({1, 2, 3}));
  const auto noise = [](Generator& random) {
    const Tensor x = Tensor::randn({3}, random, DType::f64);
    const double factor = random.uniform();
    return x * factor + static_cast<double>(random.below(1000));
  };
  Values losses[2], gradients[2];
  GeneratorState states[2];
  for (const bool recompute : {false, true}) {
    Generator random(test_seed(1));
    random.next();
    Tape tape;
    const Tensor y = maybe(recompute, {}, [&] {
      const Tensor first = a * noise(random);
      const Tensor second = maybe(recompute, {first}, [&, first] {
        const NoGradGuard pause;
        return noise(random);
      });
      const Tensor third =
          maybe(recompute, {first}, [&, first] { return exp(first * 0.001 * noise(random)); });
      return first * second + third * noise(random);
    });
    const Tensor loss = sum(y * noise(random));
    losses[recompute] = elements(y);
    gradients[recompute] = elements(tape.gradients(loss, {a})[0]);
    states[recompute] = random.state();
    CHECK(elements(tape.gradients(loss, {a}, {}, true)[0]) == gradients[recompute]);
    CHECK(random.state() == states[recompute]);
    a.state()->has_gradient = false;
    tape.backward(loss);
    CHECK(random.state() == states[recompute]);
    CHECK(elements(a.gradient()) == gradients[recompute]);
  }
  CHECK(losses[0] == losses[1]);
  CHECK(gradients[0] == gradients[1]);
  CHECK(states[0] == states[1]);
}

TEST_CASE("without a tape a body runs once, and nothing is kept") {
  const Parameter a(values({2}));
  Tensor inside, y;
  const auto body = [&] { return inside = a * 3.0; };
  y = checkpoint({}, body);
  CHECK(y.state() == inside.state());
  Tape tape;
  {
    const NoGradGuard pause;
    y = checkpoint({}, body);
  }
  CHECK(y.state() == inside.state());
  CHECK(tape.memory().nodes == 0);
  tape.backward(inside + a);  // a constant of the tape, since it was not recorded
  CHECK(a.gradient().item() == 1);
}

TEST_CASE("a body that computes nothing on the tape is not an operation of it") {
  const Parameter a(values({2}));
  const Tensor x = values({3});
  Tape tape;
  tape.watch(x);
  const Tensor h = x * 2.0;
  CHECK(checkpoint({h}, [h] { return h; }).state() == h.state());
  const Tensor same = checkpoint({}, [&] {
    const Tensor unused = a * 2.0;
    return a.value();
  });
  CHECK(same.state() == a.value().state());
  CHECK_FALSE(tape.tracks(checkpoint({}, [] { return values({1}) + values({2}); })));
  CHECK_FALSE(checkpoint({}, [] { return Tensor(); }).defined());
  CHECK(tape.memory().nodes == 1);
  CHECK(tape.gradients(h * a, {x})[0].item() == 4);
}

TEST_CASE("a body may have a tape of its own, and lie between other operations of an inner tape") {
  const Parameter a(values({3}));
  Tape outer;
  const Tensor slope = checkpoint({}, [&] {
    const Tensor x = values({2});
    Tape own;
    own.watch(x);
    const Tensor inner = own.gradients(x * x * x, {x})[0];  // 12
    return inner;
  });
  CHECK(slope.item() == 12);
  const Tensor y = checkpoint({}, [&] { return a * a; });
  {
    Tape inner;
    const Tensor z = checkpoint({}, [&] { return a * 5.0; });
    CHECK(outer.gradients(y, {a})[0].item() == 6);
    CHECK(inner.gradients(z, {a})[0].item() == 5);
    inner.backward(z);
    CHECK(a.gradient().item() == 5);
  }
  outer.backward(y);
  CHECK(a.gradient().item() == 11);
}

TEST_CASE("anomalies, wrappers and profiles see the operations of the body") {
  const Parameter a(values({4, 0}));
  {
    Tape tape;
    tape.detect_anomalies();
    const std::string rest = " gave the first value that is not finite";
    CHECK(message_of<TapeError>([&] {
            checkpoint({}, [&] { return log(a); });
          }).find("[log] forward" + rest) == 0);
    const Tensor y = sum(checkpoint({}, [&] { return sqrt(a) * 2.0; }));
    CHECK(message_of<TapeError>([&] { tape.backward(y); }).find("[sqrt] backward" + rest) == 0);
  }
  const Tensor x = values({2, 3, 5, 7}, {2, 2});
  Tape tape;
  tape.watch(x);
  std::string ops;
  tape.wrap_gradients([&](const Contribution& contribution, const Tensor& gradient) {
    ops += std::string(contribution.op) + " ";
    return std::string(contribution.op) == "exp" ? gradient * 2 : gradient;
  });
  const Profile profile;
  const Tensor y = sum(checkpoint({x}, [x] { return matmul(exp(x * 0.0), x); }));
  CHECK(profile.flops(false) == 16);
  const Tensor gradient = tape.gradients(y, {x})[0];
  CHECK(ops.find("sum matmul matmul exp ") == 0);
  CHECK(profile.flops(false) == 16);
  CHECK(profile.flops(true) == 3 * 16);  // the forward again, and two products of the gradient
}

TEST_CASE("threads recompute side by side") {
  const auto gradient = [](std::uint64_t seed, bool recompute) {
    const Parameter a(values({0.5, 0.25}));
    Generator random(test_seed(seed));
    for (int step = 0; step < 50; ++step) {
      Tape tape;
      const Tensor y = maybe(recompute, {}, [&] { return exp(a * random.normal()); });
      tape.backward(sum(maybe(recompute, {y}, [&, y] { return y * random.normal(); })));
    }
    return elements(a.gradient());
  };
  Values found[2];
  std::thread other([&] { found[0] = gradient(1, true); });
  found[1] = gradient(2, true);
  other.join();
  CHECK(found[0] == gradient(1, false));
  CHECK(found[1] == gradient(2, false));
}
