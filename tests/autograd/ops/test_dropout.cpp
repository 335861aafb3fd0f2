#include <tapeformer/autograd/kernels/dropout.h>
#include <tapeformer/autograd/ops/dropout.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/ops/op_case.h>
#include <tapeformer/tests/reference/rounding.h>
#include <tapeformer/tests/reference/threads.h>

#include <cmath>

using namespace tapeformer;

namespace {

const DropoutKey kKey{11, 22, 33};

Tensor ones(Index count) { return Tensor::full({count}, 1, DType::f64); }

/// Element by element from the random words: kept unless the word is below probability * 2^32.
Tensor oracle(const Tensor& x, double probability, const DropoutKey& key) {
  const kernels::PhiloxStream stream{key.seed, key.stream ^ std::uint64_t{1} << 63, key.step << 32};
  return filled(x.shape(), [&](Index i) {
    return kernels::dropout_word(stream, i) < probability * 0x1p32 ? 0 : x.at(i) / (1 - probability);
  });
}

}  // namespace

TEST_CASE("probability 0 returns x itself, 1 gives zeros even of a NaN, one half doubles what it keeps") {
  const Tensor x = values({1, 2, kNan});
  CHECK(dropout(x, 0, kKey).state() == x.state());
  CHECK(dropout(x, 1, kKey).to_vector<double>() == std::vector<double>{0, 0, 0});
  const Tensor y = dropout(ones(1000), 0.5, kKey);
  for (Index i = 0; i < 1000; ++i) CHECK((y.at(i) == 0 || y.at(i) == 2));
}

TEST_CASE("values and gradients equal the definition at every size") {
  Generator random(test_seed(1));
  for (const Index n : {0, 1, 31, 32, 33, 63, 64, 65, 257, 70001}) {
    for (const double probability : {0.1, 0.7}) {
      CAPTURE(n);
      const Tensor x = random_normal({n}, random), seed = random_normal({n}, random);
      check_op([&](const auto& in) { return dropout(in[0], probability, kKey); }, {x}, seed,
               {oracle(x, probability, kKey), {oracle(seed, probability, kKey)}}, kFewRoundings, 1e-6);
    }
  }
}

TEST_CASE("f32 and f64, one thread and two, and a row and a matrix drop the same elements") {
  const Tensor y = dropout(ones(100000), 0.3, kKey);
  const auto dropped_on = [](int threads, const Tensor& x) {
    const Threads set(threads);
    return dropout(x, 0.3, kKey);
  };
  const Tensor alone = dropped_on(1, ones(100000)), f32 = dropped_on(2, ones(100000).to(DType::f32));
  const Tensor matrix = dropout(ones(100000).alias({100, 1000}), 0.3, kKey);
  for (Index i = 0; i < 100000; ++i) {
    REQUIRE(y.at(i) == alone.at(i));
    REQUIRE((y.at(i) == 0) == (f32.at(i) == 0));
    REQUIRE(y.at(i) == matrix.at(i));
  }
}

TEST_CASE("the share of kept elements is what it should be, and seed, stream and step each change which") {
  const Index n = 1 << 20;
  for (const double probability : {0.001, 0.1, 0.5, 0.9}) {
    const Tensor y = dropout(ones(n), probability, kKey);
    double dropped = 0;
    for (Index i = 0; i < n; ++i) dropped += y.at(i) == 0 ? 1 : 0;
    const double deviation = std::sqrt(n * probability * (1 - probability));
    CHECK_BELOW(std::fabs(dropped - n * probability), kDeviations * deviation);
  }
  const Tensor y = dropout(ones(n), 0.5, kKey);
  for (const DropoutKey& other : {DropoutKey{12, 22, 33}, DropoutKey{11, 23, 33}, DropoutKey{11, 22, 34},
                                  DropoutKey{11, 22, 33 + (std::uint64_t{1} << 32)}}) {
    const Tensor z = dropout(ones(n), 0.5, other);
    double same = 0;
    for (Index i = 0; i < n; ++i) same += y.at(i) == z.at(i) ? 1 : 0;
    CHECK_BELOW(std::fabs(same - n / 2.0), kDeviations * std::sqrt(n / 4.0));
  }
}

TEST_CASE("backward keeps one bit per element") {
  Tape tape;
  const Tensor x = ones(64 * 1000);
  tape.watch(x);
  const Tensor y = dropout(x, 0.2, kKey);
  CHECK(tape.memory().saved_bytes == 64 * 1000 / 8);
}

TEST_CASE("gradients of both orders, the key being frozen") {
  Generator random(test_seed(3));
  const Tensor x = random_normal({5, 13}, random);
  check_both_orders("dropout", [&] { return pow(dropout(x, 0.4, kKey), 2); }, {{"x", x}});
}

TEST_CASE("a probability outside [0, 1] is refused") {
  for (const double probability : {-0.1, 1.1, kNan}) {
    CHECK(message_of<ShapeError>([&] {
            dropout(Tensor::zeros({2}), probability, kKey);
          }).find("[dropout] probability must be in [0, 1]; got probability=") == 0);
  }
  CHECK_THROWS_WITH_AS(dropout(Tensor::zeros({2}, DType::i32), 0.5, kKey),
                       doctest::Contains("[dropout] values must be floating-point numbers; got x=i32[2]"),
                       DTypeError);
}
