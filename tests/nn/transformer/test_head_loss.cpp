#include <tapeformer/autograd/profile.h>
#include <tapeformer/nn/transformer/head_loss.h>
#include <tapeformer/tests/nn/module_case.h>

#include <cmath>

using namespace tapeformer;

namespace {

Tensor states() { return random_values({2, 3, 5}, 3); }
Tensor head_targets() { return ids_of({4, 0, -7, 6, 6, 1}, {2, 3}); }
const CrossEntropyOptions kOptions{-7, 0.1};
const HeadLossConfig kConfigs[] = {{}, {true, 0}, {true, 1}, {true, 4}};

struct Pass {
  Tensor loss;
  std::vector<Tensor> gradients;  // of the states and of the head
};

Pass pass(Head& head, const std::function<Tensor(const Tensor& x)>& loss_of) {
  head.clear_gradients();
  const Parameter x(states());
  Tape tape;
  Pass result{loss_of(x.value()), {}};
  tape.backward(result.loss);
  result.gradients.push_back(x.gradient());
  for (const Parameter& parameter : head.parameters()) result.gradients.push_back(parameter.gradient());
  return result;
}

Index calls_of(const Profile& profile, const std::string& op) {
  Index calls = 0;
  for (const ProfileLine& line : profile.lines()) calls += line.op == op ? line.calls : 0;
  return calls;
}

}  // namespace

TEST_CASE("loss and gradients are those of cross_entropy(head(states)), however they are computed") {
  for (const HeadConfig& kind :
       {HeadConfig{5, 7}, HeadConfig{5, 7, false}, HeadConfig{5, 7, true, 1.5}, HeadConfig{5, 7, false, 2}}) {
    Head head = random_module<Head>(kind);
    const Pass expected =
        pass(head, [&](const Tensor& x) { return cross_entropy(head(x), head_targets(), kOptions); });
    for (const HeadLossConfig& config : kConfigs) {
      INFO("bias ", kind.bias, ", softcap ", kind.softcap, ", fused ", config.fused, ", chunk ",
           config.chunk);
      const Pass got =
          pass(head, [&](const Tensor& x) { return head_loss(head, x, head_targets(), kOptions, config); });
      CHECK_BELOW(std::fabs(got.loss.item() / expected.loss.item() - 1), 1e-13);
      REQUIRE(got.gradients.size() == expected.gradients.size());
      for (std::size_t i = 0; i < got.gradients.size(); ++i)
        CHECK_BELOW(relative_error(got.gradients[i], expected.gradients[i]), 1e-13);
      const NoGradGuard pause;
      CHECK_BELOW(
          deviation(head_loss(head, states(), head_targets(), kOptions, config).item(), expected.loss.item()),
          1e-13);
    }
  }
}

TEST_CASE("the softcap of the options counts where the head has none") {
  const Head head = random_module<Head>(HeadConfig{5, 7});
  CrossEntropyOptions capped = kOptions;
  capped.softcap = 1.5;
  const double expected = cross_entropy(head(states()), head_targets(), capped).item();
  for (const HeadLossConfig& config : kConfigs)
    CHECK_BELOW(deviation(head_loss(head, states(), head_targets(), capped, config).item(), expected), 1e-13);
}

TEST_CASE("logits are the projection, capped if requested") {
  for (const double cap : {0.0, 2.0}) {
    Head head = random_module<Head>(HeadConfig{5, 7, true, cap});
    const Tensor x = states(), logits = head(x), weight = head.weight().value();
    for (Index row = 0; row < 6; ++row) {
      for (Index word = 0; word < 7; ++word) {
        double expected = head.bias().value().at(word);
        for (Index i = 0; i < 5; ++i) expected += x.at(row * 5 + i) * weight.at(word * 5 + i);
        if (cap > 0) expected = cap * std::tanh(expected / cap);
        CHECK_BELOW(deviation(logits.at(row * 7 + word), expected), 1e-13);
      }
    }
  }
}

TEST_CASE("on a GPU the gradient is written over the logits, elsewhere only on request") {
  Head head = random_module<Head>(HeadConfig{5, 7});
  for (const HeadLossConfig& config : kConfigs) {
    const Profile profile;
    pass(head, [&](const Tensor& x) { return head_loss(head, x, head_targets(), kOptions, config); });
    const bool at_once = config.fused || default_device().is_cuda();
    CHECK((calls_of(profile, "linear_cross_entropy") > 0) == at_once);
    CHECK((calls_of(profile, "cross_entropy") > 0) == !at_once);
  }
}

TEST_CASE("targets that do not fit are refused, fused or not") {
  Head head = random_module<Head>(HeadConfig{5, 7});
  for (const HeadLossConfig& config : kConfigs) {
    CHECK_THROWS_WITH_AS(head_loss(head, states(), ids_of({1, 2}, {2}), {}, config),
                         doctest::Contains("targets must have the shape of the rows"), ShapeError);
  }
}
