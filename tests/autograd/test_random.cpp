#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/tests/reference/check_below.h>
#include <tapeformer/tests/reference/rounding.h>
#include <tapeformer/tests/reference/seed.h>
#include <tapeformer/tests/reference/threads.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

using namespace tapeformer;

namespace {

std::vector<float>
torch_linear_weight_3_2() {  // printed by torch.manual_seed(789); nn.Linear(3, 2, bias=False)
  return {0x1.43a4fep-2f, 0x1.d3c5a0p-2f, 0x1.060f38p-1f, -0x1.58a604p-3f, -0x1.59fc70p-2f, -0x1.77e7e0p-4f};
}

}  // namespace

TEST_CASE("Philox gives the known answers of the Random123 library") {
  const auto check = [](kernels::PhiloxBlock counter, std::array<std::uint32_t, 2> key,
                        std::array<std::uint32_t, 4> expected) {
    const kernels::PhiloxBlock block = kernels::philox_4x32_10(counter, key[0], key[1]);
    for (std::size_t i = 0; i < 4; ++i) CHECK(block.word[i] == expected[i]);
  };
  check({{0, 0, 0, 0}}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  check({{~0u, ~0u, ~0u, ~0u}}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  check({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {0xa4093822, 0x299f31d0},
        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a generator walks through the words of its stream") {
  Generator random(0);
  CHECK(random.next() == 0x6627e8d5);
  CHECK(random.next() == 0xe169c58d);
  const kernels::PhiloxStream stream{7, 3, 0};
  Generator other(7, 3);
  for (Index i = 0; i < 11; ++i) CHECK(other.next() == stream.word(i));
}

TEST_CASE("seeds, streams and children have different sequences") {
  Generator parent(1);
  std::set<std::uint32_t> firsts{Generator(1).next(), Generator(2).next(), Generator(1, 1).next(),
                                 Generator(1, std::uint64_t{1} << 32).next(),
                                 Generator(std::uint64_t{1} << 32).next()};
  Generator child = parent.split(), second = parent.split();
  firsts.insert(child.next());
  firsts.insert(second.next());
  CHECK(firsts.size() == 7);
  Generator again(1);
  CHECK(again.split().state().stream == child.state().stream);
}

TEST_CASE("normal numbers are Box and Muller's of the uniform ones") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Generator uniform(seed);
    const double u = uniform.uniform(), v = uniform.uniform();
    const double length = std::sqrt(-2 * std::log1p(-u));
    const double expected = length * std::cos(2 * std::acos(-1.0) * v);
    // The angle, up to 2 pi, is off by six roundings of 1 alone.
    CHECK_BELOW(std::abs(Generator(seed).normal() - expected), kFewRoundings * length);
  }
}

TEST_CASE("a child's stream is the next two words of 32 bits, one after the other") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Generator parent(seed), words(seed);
    const std::uint64_t high = words.next(), low = words.next();
    CHECK(parent.split().state() == GeneratorState{seed, high << 32 | low, 0});
  }
}

TEST_CASE("a restored generator continues where the saved one was") {
  Generator random(42, 5);
  for (int i = 0; i < 7; ++i) random.next();
  const GeneratorState saved = random.state();
  const double expected[3] = {random.uniform(), random.normal(), static_cast<double>(random.below(1000))};
  Generator other(1);
  other.next();
  other.restore(saved);
  CHECK(other.uniform() == expected[0]);
  CHECK(other.normal() == expected[1]);
  CHECK(static_cast<double>(other.below(1000)) == expected[2]);
  CHECK(other.state() == random.state());
}

TEST_CASE("reserved words are the ones a generator would have drawn from the next block on") {
  Generator random(3), same(3);
  random.next();
  const kernels::PhiloxStream stream = random.reserve(5);
  for (int i = 0; i < 4; ++i) same.next();
  for (Index i = 0; i < 5; ++i) CHECK(stream.word(i) == same.next());
  for (int i = 0; i < 3; ++i) same.next();
  CHECK(random.next() == same.next());
}

TEST_CASE("uniform numbers fill [0, 1) evenly") {
  Generator random(test_seed(42));
  std::array<int, 10> counts{};
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const double value = random.uniform();
    ++counts.at(static_cast<std::size_t>(value * 10));
    sum += value;
    squares += value * value;
  }
  for (const int count : counts) CHECK_BELOW(std::abs(count - 10000), kDeviations * std::sqrt(1e4 * 9 / 10));
  CHECK_BELOW(std::abs(sum / 1e5 - 0.5), kDeviations * std::sqrt(1.0 / 12 / 1e5));
  CHECK_BELOW(std::abs(squares / 1e5 - 1.0 / 3), kDeviations * std::sqrt(4.0 / 45 / 1e5));
}

TEST_CASE("bounded numbers cover their range evenly and refuse an empty one") {
  Generator random(test_seed(9));
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts.at(static_cast<std::size_t>(random.below(7)));
  for (const int count : counts) CHECK_BELOW(std::abs(count - 10000), kDeviations * std::sqrt(1e4 * 6 / 7));
  CHECK(random.below(1) == 0);
  CHECK_THROWS_WITH_AS(random.below(0), "[below] n must be positive; got n=0", Error);
}

TEST_CASE("a shuffle reaches every order equally often") {
  Generator random(test_seed(11));
  std::array<int, 27> counts{};
  for (int i = 0; i < 60000; ++i) {
    std::vector<int> order{0, 1, 2};
    random.shuffle(order);
    ++counts.at(static_cast<std::size_t>(order[0] * 9 + order[1] * 3 + order[2]));
  }
  CHECK(std::count(counts.begin(), counts.end(), 0) == 21);
  for (const int count : counts) {
    if (count != 0) CHECK_BELOW(std::abs(count - 10000), kDeviations * std::sqrt(1e4 * 5 / 6));
  }
}

TEST_CASE("filling gives the same values in both types and for any number of threads") {
  for (const Index size : {0, 1, 2, 31, 32, 33, 257, 20001}) {
    const Tensor one = Tensor::empty({size}), two = Tensor::empty({size}, DType::f64);
    const Tensor three = Tensor::empty({size});
    for (const bool normal : {false, true}) {
      Generator first(test_seed(5)), second(test_seed(5)), third(test_seed(5));
      const auto fill = [normal](Generator& random, const Tensor& x) {
        normal ? random.fill_normal(x, 1, 2) : random.fill_uniform(x, -3, 4);
      };
      fill(first, one);
      fill(second, two);
      {
        const Threads set(1);
        fill(third, three);
      }
      bool same = true, inside = true;
      for (Index i = 0; i < size; ++i) {
        same = same && one.at(i) == static_cast<double>(static_cast<float>(two.at(i))) &&
               one.at(i) == three.at(i);
        inside = inside && (normal || (one.at(i) >= -3 && one.at(i) < 4));
      }
      CHECK(same);
      CHECK(inside);
      CHECK(first.state() == second.state());
      CHECK(first.next() == third.next());
    }
  }
  Generator random(1);
  CHECK_THROWS_WITH_AS(random.fill_normal(Tensor::zeros({2}, DType::i32), 0, 1),
                       "[fill_normal] x must be floating-point numbers; got x=i32[2]", DTypeError);
  CHECK_THROWS_WITH_AS(random.fill_uniform(Tensor::zeros({2}), 1, -1),
                       "[fill_uniform] low must be at most high; got low=1, high=-1", Error);
}

TEST_CASE("a generator for loading fills nothing and advances as another does") {
  Generator filling(0), loading = Generator::for_loading();
  const Tensor x = Tensor::rand({7, 3}, filling), y = Tensor::full({7, 3}, 5);
  loading.fill_uniform(y, 0, 1);
  CHECK(y.to_vector<float>() == std::vector<float>(21, 5));
  CHECK(loading.state() == filling.state());
}

TEST_CASE("rounding never reaches the upper end") {
  Generator random(test_seed(1));
  for (const auto& [low, high, type] : {std::tuple(1.0, 1 + 0x1p-22, DType::f32),  // three floats in between
                                        {0.0, 1.0, DType::bf16},
                                        {-1.0, 0.0, DType::bf16}}) {
    const Tensor x = Tensor::empty({200000}, type, Device::cpu());
    random.fill_uniform(x, low, high);
    for (Index i = 0; i < x.elements(); ++i) REQUIRE(x.at(i) < high);
  }
}

TEST_CASE("rand gives torch.rand's bits") {
  TorchGenerator random(123);  // printed by torch.manual_seed(123); torch.rand(3, 2)
  CHECK(random.rand({3, 2}).to_vector<float>() == std::vector<float>{0x1.2f37f8p-2f, 0x1.087adap-1f,
                                                                     0x1.01b5f8p-2f, 0x1.608a84p-1f,
                                                                     0x1.2efdc0p-4f, 0x1.bba8c4p-1f});
}

TEST_CASE("linear_weight and linear_bias give the bits of torch.nn.Linear") {
  TorchGenerator random(789);
  CHECK(random.linear_weight(2, 3).to_vector<float>() == torch_linear_weight_3_2());
  TorchGenerator other(5);  // printed by torch.manual_seed(5); nn.Linear(7, 5)
  const Tensor weight = other.linear_weight(5, 7);
  CHECK(weight.data<float>()[0] == 0x1.ff46e6p-3f);
  CHECK(weight.data<float>()[1] == -0x1.216ab2p-2f);
  CHECK(weight.data<float>()[34] == 0x1.caf780p-3f);
  CHECK(other.linear_bias(5, 7).to_vector<float>() ==
        std::vector<float>{0x1.787cc6p-3f, 0x1.6b95a2p-2f, -0x1.53ea44p-2f, -0x1.7cf91ap-5f, 0x1.78d45ap-2f});
  CHECK(other.linear_bias(1, 0).item() == 0);
}

TEST_CASE("dropout_mask keeps what the walk-through's dropout keeps") {
  const std::vector<bool> expected{1, 1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 0, 1,
                                   0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 0};
  CHECK(TorchGenerator(123).dropout_mask({6, 6}, 0.5).to_vector<bool>() == expected);
}
