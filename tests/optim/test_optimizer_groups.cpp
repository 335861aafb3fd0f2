#include <tapeformer/autograd/error.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/optimizer_groups.h>
#include <tapeformer/optim/sgd.h>
#include <tapeformer/tests/autograd/communication/ranks_case.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_CASE("ranks that divide the work of groups get a single process's values, and save whole tensors") {
  RanksRun run;
  run.to = 5;
  run.make = [](const RanksCase& model) {
    std::vector<OptimizerGroups::Group> groups;
    groups.push_back({std::make_unique<AdamW>(std::vector{model.wide, model.gain}), 1});
    groups.push_back({std::make_unique<AdamW>(std::vector{model.bias, model.narrow, model.back}), 0.5});
    return std::make_unique<OptimizerGroups>("groups", std::move(groups));
  };
  std::vector<Tensor> moments;  // of one rank, and of the first of three
  run.after = [&](Communicator& ranks, Optimizer& optimizer) {
    OptimizerCopy copy;
    optimizer.visit_state(copy);
    if (ranks.rank() == 0) moments.push_back(copy.tensors.at("adamw.first_moment.p1"));
  };
  const std::vector<Tensor> one = trained(1, run)[0];
  REQUIRE(one.size() == 5);
  run.sharded = true;
  CHECK_BELOW(error_of(trained(3, run), one), 1e-12);
  CHECK_BELOW(relative_error(moments[1], moments[0]), 1e-12);
}

TEST_CASE("a parameter in two groups is refused") {
  const OptimCase model(DType::f32);
  std::vector<OptimizerGroups::Group> groups;
  groups.push_back({std::make_unique<Sgd>(model.parameters(), SgdConfig{}), 1});
  groups.push_back({std::make_unique<AdamW>(std::vector{model.bias}), 1});
  CHECK_THROWS_WITH_AS(OptimizerGroups("groups", std::move(groups)),
                       doctest::Contains("[groups] a parameter must"), Error);
}
