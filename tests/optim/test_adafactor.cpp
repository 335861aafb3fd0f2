#include <doctest/doctest.h>
#include <omp.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/optim/adafactor.h>
#include <tapeformer/tests/autograd/communication/ranks_case.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/support.h>

#include <algorithm>
#include <utility>

using namespace tapeformer;

namespace {

AdafactorConfig other_options() {
  AdafactorConfig config;
  config.beta2_decay = 0.5, config.epsilon = 1e-2, config.least_scale = 0.3, config.update_clip = 1.5;
  config.weight_decay = 0.1;
  config.decays = [](const Parameter&) { return true; };  // as PyTorch does
  return config;
}

/// A first step from no state, by plain loops over matrices [..., R, C].
std::vector<double> first_step(const Tensor& x, const Tensor& gradient, double rate, double factor) {
  const Shape& shape = x.shape();
  const Index columns = shape[shape.rank() - 1], size = columns * shape[shape.rank() - 2];
  const auto g = [&](Index i) { return factor * gradient.at(i); };
  const auto mean_square = [&](Index from, Index to, Index stride) {
    double sum = 0;
    for (Index i = from; i < to; i += stride) sum += g(i) * g(i);
    return sum * static_cast<double>(stride) / static_cast<double>(to - from);
  };
  std::vector<double> updates, result;
  double values = 0, squares = 0;
  for (Index matrix = 0; matrix < x.elements(); matrix += size) {
    std::vector<double> of_columns;
    for (Index c = 0; c < columns; ++c)
      of_columns.push_back(mean_square(matrix + c, matrix + c + size, columns));
    const double of_all = mean_square(matrix, matrix + size, 1);
    for (Index row = matrix; row < matrix + size; row += columns) {
      const double of_row = mean_square(row, row + columns, 1);
      for (Index c = 0; c < columns; ++c) {
        const double variance = of_row * of_columns[static_cast<std::size_t>(c)] / of_all;
        updates.push_back(g(row + c) / std::sqrt(variance));
        squares += updates.back() * updates.back();
        values += x.at(row + c) * x.at(row + c);
      }
    }
  }
  const auto count = static_cast<double>(x.elements());
  const double step = rate * std::sqrt(values / count) / std::max(1.0, std::sqrt(squares / count));
  for (Index i = 0; i < x.elements(); ++i)
    result.push_back(x.at(i) - step * updates[static_cast<std::size_t>(i)]);
  return result;
}

}  // namespace

TEST_SUITE("optim/adafactor") {
  TEST_CASE("ten steps agree with torch.optim.Adafactor, a missing gradient among them") {
    for (const DType type : {DType::f32, DType::f64}) {
      const double tolerance = type == DType::f64 ? 1e-12 : 2e-5;
      const auto check = [&](const AdafactorConfig& config, double scale, const std::vector<double>& weight,
                             const std::vector<double>& bias) {
        OptimCase model(type);
        Adafactor optimizer(model.parameters(), config);
        const double rates[] = {0.1, 0.05, 0.02, 0.2, 0.01};
        for (int step = 0; step < 10; ++step) {
          model.set_gradients(step);
          if (step == 2) model.bias.clear_gradient();
          optimizer.step(scale * rates[step % 5]);
        }
        CHECK_BELOW(distance(model.weight, weight), tolerance);
        CHECK_BELOW(distance(model.bias, bias), tolerance);
      };
      check({}, 1,
            {0.371178543168011, -1.26428881360801, 1.90954611163593, 1.32574843400828, -0.529175553676825,
             2.15379758482268},
            {0.104604362985338, -0.231344648317843, 0.274464260023048});
      check(other_options(), 1,
            {0.391891000863534, -1.16232955962992, 1.77496549653521, 1.28320260258362, -0.535006385845307,
             1.99871881584503},
            {0.0960789556820403, -0.231050502442073, 0.26765664823006});
      // Some of these rates are above 1 / sqrt(t).
      check({}, 10,
            {-2.71019077698751, -2.1456260550757, 1.71689030913889, 2.79315550869925, -0.137850359888551,
             11.2461921927384},
            {-0.256304346251194, -0.345531977148281, 0.304613049995898});
    }
  }

  TEST_CASE("every size agrees with plain loops, and the number of threads does not show") {
    for (const Shape& shape : {Shape{3, 0}, Shape{1, 1}, Shape{31, 33}, Shape{257, 130}, Shape{3, 5, 70}}) {
      CAPTURE(shape.text());
      Generator random(test_seed(3));
      const Tensor initial = Tensor::randn(shape, random, DType::f64),
                   gradient = Tensor::randn(shape, random, DType::f64);
      const auto train = [&](int threads) {
        const int most = omp_get_max_threads();
        omp_set_num_threads(threads);
        const Parameter x(initial.clone());
        Adafactor optimizer({x});
        set_gradient(x, gradient);
        optimizer.step(0.1, 0.5);
        omp_set_num_threads(most);
        return x.value();
      };
      const Tensor one = train(1), two = train(2);
      CHECK(absolute_error(one, two) == 0);
      const std::vector<double> expected = first_step(initial, gradient, 0.1, 0.5);
      if (!expected.empty()) CHECK_BELOW(distance(Parameter(one), expected), 1e-13);
    }
  }

  TEST_CASE("a matrix keeps a number for each row and each column, and goes on from them to the same bits") {
    OptimCase whole(DType::f32), second(DType::f32);
    Adafactor before(whole.parameters()), after(second.parameters());
    whole.run(before, 0, 4);
    OptimizerCopy copy;
    before.visit_state(copy);
    CHECK(copy.tensors.size() == 3);
    CHECK(copy.tensors.at("adafactor.row_variance.layer.weight").shape() == Shape{2});
    CHECK(copy.tensors.at("adafactor.column_variance.layer.weight").shape() == Shape{3});
    CHECK(copy.tensors.at("adafactor.variance.layer.bias").shape() == Shape{3});
    CHECK(copy.counters.at("adafactor.steps.layer.bias") == 3);
    copy.restores = true;
    after.visit_state(copy);
    second.weight.value().copy_from(whole.weight.value());
    second.bias.value().copy_from(whole.bias.value());
    whole.run(before, 4, 10);
    second.run(after, 4, 10);
    CHECK(absolute_error(second.weight.value(), whole.weight.value()) == 0);
    CHECK(absolute_error(second.bias.value(), whole.bias.value()) == 0);
  }

  TEST_CASE("a clipped step is the step at the clip's factor") {
    OptimCase clipped(DType::f64), plain(DType::f64);
    Adafactor one(clipped.parameters()), other(plain.parameters());
    clipped.set_gradients(0);
    plain.set_gradients(0);
    const double norm = one.clipped_step(0.1, 0.5, 0.25).item();
    CHECK(norm > 0.25);
    other.step(0.1, 0.5 * 0.25 / (norm + 1e-6));
    CHECK_BELOW(absolute_error(clipped.weight.value(), plain.weight.value()), 1e-15);
  }

  TEST_CASE("parameters that ranks divide are refused") {
    std::string message;
    reference::as_ranks(2, [&](Communicator& ranks) {
      const RanksCase model(DType::f64);
      const DataParallel parallel(shared(ranks), model.parameters(), {256, true});
      const std::string refusal = message_of<Error>([&] { Adafactor{model.parameters()}; });
      if (ranks.rank() == 0) message = refusal;
    });
    CHECK(message.find("[adafactor] ranks must not divide a parameter, whose rows and columns have sums; got "
                       "f64[") == 0);
  }

  TEST_CASE("options that make no sense are refused by name") {
    const auto refused = [](double AdafactorConfig::*field, double value, const char* message) {
      AdafactorConfig config;
      config.*field = value;
      CHECK_THROWS_WITH_AS(Adafactor({}, config), message, Error);
    };
    refused(&AdafactorConfig::update_clip, 0, "[adafactor] update_clip must be positive; got 0");
    refused(&AdafactorConfig::beta2_decay, -1, "[adafactor] beta2_decay must not be negative; got -1");
    refused(&AdafactorConfig::epsilon, -1, "[adafactor] epsilon must not be negative; got -1.000000");
  }
}
