#include <tapeformer/nn/dropout.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

namespace {

Dropout dropout_of(double probability, std::uint64_t seed = 1) {
  Generator random(test_seed(seed));
  return Dropout({probability}, random);
}

const Tensor& ones() {
  static const Tensor x = Tensor::full({100, 100}, 1);
  return x;
}

}  // namespace

TEST_CASE("the requested share is dropped, and the rest is scaled so that the mean stays") {
  for (const double probability : {0.1, 0.5, 0.9}) {
    const Tensor y = dropout_of(probability)(ones());
    double dropped = 0;
    for (Index i = 0; i < y.elements(); ++i) {
      if (y.at(i) == 0) ++dropped;
      if (y.at(i) != 0) REQUIRE_BELOW(deviation(y.at(i), 1 / (1 - probability)), 1e-6);
    }
    CHECK_BELOW(std::fabs(dropped / 1e4 - probability),
                kDeviations * std::sqrt(probability * (1 - probability) / 1e4));
  }
  CHECK(absolute_error(dropout_of(1)(ones()), Tensor::zeros({100, 100})) == 0);
}

TEST_CASE("in evaluation mode, or with probability zero, the input passes and nothing is drawn") {
  Dropout dropout = dropout_of(0.5), none = dropout_of(0);
  dropout.eval();
  CHECK(same_bits(dropout(ones()), ones()));
  CHECK(same_bits(none(ones()), ones()));
  CHECK(*dropout.named_counters()[0].second == 0);
  CHECK(*none.named_counters()[0].second == 0);
  dropout.train();
  CHECK_FALSE(same_bits(dropout(ones()), ones()));
}

TEST_CASE("each call draws the next mask, and a counter set back draws the same again") {
  Dropout dropout = dropout_of(0.5);
  const Tensor first = dropout(ones()), second = dropout(ones());
  CHECK_FALSE(same_bits(first, second));
  CHECK(*dropout.named_counters()[0].second == 2);
  rewind(dropout);
  CHECK(same_bits(dropout(ones()), first));
  CHECK(same_bits(dropout(ones()), second));
}

TEST_CASE("layers draw from streams of their own, and a seed fixes them all") {
  Generator random(test_seed(1)), again(test_seed(1)), other(test_seed(2));
  const Dropout first({0.5}, random), second({0.5}, random), first_again({0.5}, again),
      elsewhere({0.5}, other);
  const Tensor y = first(ones());
  CHECK_FALSE(same_bits(second(ones()), y));
  CHECK(same_bits(first_again(ones()), y));
  CHECK_FALSE(same_bits(elsewhere(ones()), y));
}

TEST_CASE(
    "ranks drop different elements, rank 0 those of a single process, and also from rank 0's checkpoint") {
  const auto draws_of = [](int rank, std::uint64_t saved) {
    Dropout dropout = dropout_of(0.5);
    *dropout.named_counters()[0].second = saved;
    separate_draws(dropout, 3);  // is forgotten
    separate_draws(dropout, rank);
    std::vector<Tensor> draws;
    for (int i = 0; i < 4; ++i) draws.push_back(dropout(ones()));
    CHECK((*dropout.named_counters()[0].second & 0xFFFFFFFF) == saved + 4);
    return draws;
  };
  const Dropout alone = dropout_of(0.5);
  for (const Tensor& draw : draws_of(0, 0)) CHECK(same_bits(draw, alone(ones())));
  std::vector<Tensor> all;
  for (const int rank : {0, 1, 2, 255, 256, 70000}) {
    const std::vector<Tensor> draws = draws_of(rank, 0), resumed = draws_of(rank, 2);
    CHECK(same_bits(resumed[0], draws[2]));
    CHECK(same_bits(resumed[1], draws[3]));
    all.insert(all.end(), draws.begin(), draws.end());
    const std::vector<Tensor> far = draws_of(rank, 1 << 24);
    all.insert(all.end(), far.begin(), far.end());
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) REQUIRE_FALSE(same_bits(all[i], all[j]));
}

TEST_CASE("a probability outside [0, 1] is refused") {
  for (const double probability : {-0.1, 1.1, std::nan("")}) {
    CHECK(message_of<Error>([&] {
            dropout_of(probability);
          }).find("[dropout] the probability must be in [0, 1]; got ") == 0);
  }
}
