#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/muon_adamw.h>
#include <tapeformer/tests/autograd/communication/ranks_case.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/rounding.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace tapeformer;

namespace {

Parameter named(const char* name, const Shape& shape) {
  Generator random(test_seed(5));
  Parameter x(random_normal(shape, random));
  x.set_name(name);
  return x;
}

}  // namespace

TEST_CASE("hidden matrices are recognised by their shapes and names") {
  for (const char* name :
       {"layers.0.attention.query_key_value.weight", "0.feed_forward.up.weight", "header.weight"})
    CHECK(is_hidden_matrix(named(name, {2, 3})));
  for (const char* name :
       {"embedding.weight", "encoder.embedding.weight", "positions.weight", "token_types.weight",
        "head.weight", "layers.0.attention.relative_bias.weight", "layers.0.attention.score"})
    CHECK_FALSE(is_hidden_matrix(named(name, {2, 3})));
  CHECK_FALSE(is_hidden_matrix(named("layers.0.feed_forward.up.bias", {3})));
  CHECK_FALSE(is_hidden_matrix(named("layers.0.stack", {2, 3, 4})));
}

TEST_CASE("a negative learning rate for all but hidden matrices is refused") {
  MuonAdamWConfig config;
  config.adam_rate = -1;
  CHECK(message_of<Error>([&] {
          MuonAdamW({named("up.weight", {4, 5})}, config);
        }) == "[muon] adam_rate must not be negative; got -1");
}

TEST_CASE("it steps as Muon and AdamW do, and clips by the norm of all gradients") {
  const auto parameters = [] {
    return std::vector<Parameter>{named("embedding.weight", {3, 4}), named("up.weight", {4, 5}),
                                  named("up.bias", {5})};
  };
  const auto set_gradients = [](const std::vector<Parameter>& all, int step) {
    Generator random(test_seed(static_cast<std::uint64_t>(step)));
    for (const Parameter& x : all) set_gradient(x, random_normal(x.value().shape(), random));
  };
  MuonAdamWConfig config;
  config.momentum = 0.8;
  config.adam_rate = 0.25;
  const std::vector<Parameter> together = parameters(), apart = parameters();
  MuonAdamW optimizer(together, config);
  Muon muon({apart[1]}, config);
  AdamW adamw({apart[0], apart[2]}, config.adamw);
  for (int step = 0; step < 4; ++step) {
    set_gradients(together, step);
    set_gradients(apart, step);
    const double norm = gradient_norm(apart);
    CHECK_BELOW(deviation(optimizer.clipped_step(0.1, 0.5, 1).item(), 0.5 * norm), 1e-14);
    const double factor = kernels::step_factor(0.5 * norm, 0.5, 1);
    muon.step(0.1, factor);
    adamw.step(0.025, factor);
    for (std::size_t i = 0; i < apart.size(); ++i)
      CHECK_BELOW(relative_error(together[i].value(), apart[i].value()), 1e-13);
  }
  OptimizerCopy state;
  optimizer.visit_state(state);
  CHECK(state.tensors.count("muon.momentum.up.weight") == 1);
  CHECK(state.tensors.count("adamw.first_moment.embedding.weight") == 1);
  CHECK(state.counters.count("adamw.steps.up.bias") == 1);
  CHECK(state.tensors.size() == 5);
}

TEST_CASE("all ranks get the same bits, and a single process's values; dividing the work is refused") {
  RanksRun run;
  run.to = 2;
  run.make = [](const RanksCase& model) { return std::make_unique<MuonAdamW>(model.parameters()); };
  const auto one = trained(1, run), three = trained(3, run);
  // Roundings of sums of some twenty terms, which each step enlarges as the polynomial does the smallest
  // singular values.
  CHECK_BELOW(error_of(three, one[0]), 20 * unit_roundoff(DType::f64) * std::pow(3.4445, 5 * run.to));
  CHECK(error_of(three, three[0]) == 0);
  run.sharded = true;
  CHECK(message_of<Error>([&] { trained(2, run); }) ==
        "[muon] ranks cannot divide the work on matrices that are made orthogonal as a whole; try without "
        "shard_optimizer");
}
