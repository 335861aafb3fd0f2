#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/nn/experts.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/check_gradients.h>
#include <tapeformer/tests/reference/rounding.h>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

constexpr Index kStates = 6, kInner = 5, kRowCount = 9;

FeedForwardConfig expert_config(bool gated = true, bool bias = false) {
  return {kStates, kInner, gated ? Unary::silu : Unary::gelu, 0, bias, gated, {gated && bias ? 0.5 : 0, 1.3}};
}

/// With biases, gated networks have a limit too.
Experts random_experts(const ExpertsConfig& config, bool gated = true, bool bias = false) {
  Generator random(test_seed(1));
  Experts layer(expert_config(gated, bias), config, random);
  layer.to(DType::f64);
  randomise(layer, 2);
  return layer;
}

/// The sum over all experts of each one's network on all tokens, times its weight.
Tensor weighted(Experts& layer, const Tensor& weights, const Tensor& x, bool gated, bool bias = false) {
  const Index F = gated ? 2 * kInner : kInner;
  Generator random(test_seed(3));
  Tensor y;
  for (Index e = 0; e < weights.size(1); ++e) {
    FeedForward network(expert_config(gated, bias), random);
    network.to(DType::f64);
    for (const auto& [name, rows] : {std::pair("up", F), std::pair("down", kStates)})
      for (const char* const end : {".weight", ".bias"})
        if (bias || end == std::string(".weight"))
          set_parameter(network, name + std::string(end),
                        slice(parameter_of(layer, name + std::string(end)).value(), 0, e * rows, rows));
    const Tensor part = network(x) * slice(weights, 1, e, 1);
    y = y.defined() ? y + part : part;
  }
  return y;
}

/// weighted() with 0 where the token has not chosen an expert.
Tensor dense(Experts& layer, const ExpertsConfig& config, const Tensor& x, bool gated, bool bias) {
  const Index E = config.experts;
  Tensor logits = matmul(x, transposed(parameter_of(layer, "router.weight").value()));
  if (bias) logits = logits + parameter_of(layer, "router.bias").value();
  const Tensor scores = config.router == RouterScores::softmax ? softmax(logits) : sigmoid(logits);
  Tensor weights = Tensor::zeros(scores.shape(), DType::f64);
  for (Index n = 0; n < kRowCount; ++n) {
    std::vector<Index> order(static_cast<std::size_t>(E));
    for (Index e = 0; e < E; ++e) order[static_cast<std::size_t>(e)] = e;
    std::stable_sort(order.begin(), order.end(),
                     [&](Index a, Index b) { return scores.at(n * E + a) > scores.at(n * E + b); });
    for (Index k = 0; k < config.active; ++k)
      weights.data<double>()[n * E + order[static_cast<std::size_t>(k)]] = 1;
  }
  weights = weights * scores;
  if (config.normalized) weights = weights / sum(weights, {1}, true);
  return weighted(layer, weights, x, gated, bias);
}

}  // namespace

// Scales, widths, groups and shared networks are those of the golden models of formats/test_hugging_face.cpp.
TEST_CASE("each token gets the weighted sum of its experts' networks, whose weights are the layer's rows") {
  const Tensor x = random_values({kRowCount, kStates}, 4);
  for (const RouterScores router : {RouterScores::softmax, RouterScores::sigmoid}) {
    for (const bool normalized : {false, true}) {
      for (const auto& [gated, bias] :
           {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
        for (const Index active : {1, 3, 4}) {
          CAPTURE(active);
          const ExpertsConfig config{4, active, router, normalized};
          Experts layer = random_experts(config, gated, bias);
          CHECK_BELOW(relative_error(layer(x), dense(layer, config, x, gated, bias)), 1e-13);
        }
      }
    }
  }
}

TEST_CASE("a token whose scores are all 0 gets nothing from its experts") {
  Experts layer = random_experts({4, 2, RouterScores::sigmoid}, true, true);
  set_parameter(layer, "router.bias", Tensor::full({4}, -1e4, DType::f64));
  const Tensor y = layer(random_values({kRowCount, kStates}, 4));
  CHECK(sum(y * y).item() == 0);
}

TEST_CASE("biases change the choice and not the weights, and train towards equal loads at no loss") {
  ExpertsConfig config{4, 2, RouterScores::sigmoid};
  config.balance = RouterBalance::bias, config.balance_loss = 0.5;
  Experts layer = random_experts(config), without = random_experts({4, 2, RouterScores::sigmoid});
  for (const auto& [name, parameter] : without.named_parameters())
    set_parameter(layer, name, parameter.value());
  const Tensor x = random_values({kRowCount, kStates}, 4);
  set_parameter(layer, "choice_bias", Tensor::zeros({4}, DType::f64));
  CHECK_BELOW(relative_error(layer(x), without(x)), kFewRoundings);
  // The first and the last expert whatever the scores: an oracle with others that never win.
  set_parameter(layer, "choice_bias", Tensor::from<double>({2, 0, 0, 2}));
  Tape tape;
  LayerRecord record;
  const Tensor y = layer(x, &record);
  CHECK(record.router_losses.item() == 0);
  const Tensor scores = sigmoid(matmul(x, transposed(parameter_of(layer, "router.weight").value())));
  const Tensor chosen = Tensor::from<double>({1, 0, 0, 1});
  const Tensor weights = scores * chosen / sum(scores * chosen, {1}, true);
  tape.backward(sum(y * y) * 0 + record.router_losses);
  CHECK(layer.parameters().back().gradient().to_vector<double>() ==
        std::vector<double>{0.5, -0.5, -0.5, 0.5});
  CHECK_BELOW(relative_error(y, weighted(layer, weights, x, true)), 1e-13);
}

TEST_CASE("biases without a weight are frozen") {
  ExpertsConfig config{4, 2};
  config.balance = RouterBalance::bias, config.balance_loss = 0;
  Experts layer = random_experts(config);
  CHECK_FALSE(layer.parameters().back().trainable());
}

TEST_CASE("gradients of the output and of the router's losses, with the choice as it is") {
  for (const RouterScores router : {RouterScores::softmax, RouterScores::sigmoid}) {
    ExpertsConfig config{3, 2, router};
    config.shared = 2, config.balance_loss = 0.5, config.z_loss = 0.25, config.shared_gate = true;
    Experts layer = random_experts(config, router == RouterScores::softmax, true);
    Generator fixed(
        5);  // whatever the tests' seed, no choice is so close that a step of a difference changes it
    const Tensor x = random_normal({4, kStates}, fixed);
    set_parameter(layer, "router.weight", random_normal({3, kStates}, fixed));
    const auto function = [&] {
      LayerRecord record;
      const Tensor y = layer(x, &record);
      return y + record.router_losses;
    };
    check_gradients(std::string("experts ") + name_of(router), gradcheck_module(layer, {{"x", x}}, function));
  }
}

TEST_CASE("a router without preferences has a balance loss of its weight, and a z loss of log(E) squared") {
  for (const RouterScores router : {RouterScores::softmax, RouterScores::sigmoid}) {
    ExpertsConfig config{4, 2, router};
    config.balance_loss = 3, config.z_loss = 0;
    Experts layer = random_experts(config), z_layer = random_experts({4, 2, router, true, 0, 0, 2});
    for (Experts* each : {&layer, &z_layer})
      set_parameter(*each, "router.weight", Tensor::zeros({4, kStates}, DType::f64));
    const Tensor x = random_values({kRowCount, kStates}, 6);
    LayerRecord balance, z;
    layer(x, &balance), z_layer(x, &z);
    CHECK_BELOW(deviation(balance.router_losses.item(), 3), 1e-14);
    CHECK_BELOW(deviation(z.router_losses.item(), 2 * std::log(4) * std::log(4)), 1e-14);
  }
}

TEST_CASE("losses of several layers add up in training, and evaluation has none") {
  ExpertsConfig config{4, 2};
  config.z_loss = 0.1;
  Experts layer = random_experts(config);
  const Tensor x = random_values({kRowCount, kStates}, 7);
  LayerRecord once, twice;
  layer(x, &once);
  layer(x, &twice), layer(x, &twice);
  CHECK_BELOW(deviation(twice.router_losses.item(), 2 * once.router_losses.item()), 1e-14);
  layer.eval();
  LayerRecord none;
  layer(x, &none);
  CHECK_FALSE(none.router_losses.defined());
  CHECK_BELOW(absolute_error(sum(none.shares[0]), Tensor::scalar(1, DType::f64)), kFewRoundings);
}

TEST_CASE("Muon takes the matrices of the experts one by one") {
  Experts layer = random_experts({3, 2});
  const auto parts = layer.row_parts();
  CHECK(parts.at("up.weight") == std::vector<Index>(6, kInner));
  CHECK(parts.at("down.weight") == std::vector<Index>(3, kStates));
}

TEST_CASE("more experts for a token than there are or than groups have, and a gate of nothing, are refused") {
  Generator random(test_seed(1));
  CHECK(message_of<Error>([&] {
          Experts(expert_config(), {2, 3}, random);
        }) == "[experts] active_experts must be at most experts; got active_experts=3, experts=2");
  ExpertsConfig config{6, 2};
  config.groups = 3, config.active_groups = 4;
  CHECK(
      message_of<Error>([&] { Experts(expert_config(), config, random); }) ==
      "[experts] expert_groups must divide experts into active_groups of them or more, with active_experts "
      "in those "
      "(two in each with router=sigmoid); got experts=6, expert_groups=3, active_groups=4, active_experts=2");
  config.groups = 0;
  CHECK(message_of<Error>([&] { config.check(); }).find("[experts] expert_groups must divide experts") == 0);
  config.groups = config.active_groups = 1, config.shared_gate = true;
  CHECK(message_of<Error>([&] { config.check(); }) ==
        "[experts] shared_expert_gate needs a shared network; got shared_expert=0; try shared_expert=256");
}

TEST_CASE("the cost of a network counts its parameters and products") {
  FeedForwardConfig network = expert_config();
  network.bias = true;
  ExpertsConfig experts{4, 3};
  experts.width = 7, experts.shared = 2, experts.shared_gate = true, experts.balance = RouterBalance::bias;
  const Tensor x = random_values({kRowCount, kStates}, 5);
  for (const bool gated : {false, true}) {
    for (const bool mixes : {false, true}) {
      network.gated = gated;
      const ExpertsConfig chosen = mixes ? experts : ExpertsConfig();
      Generator random(test_seed(6));
      FeedForwardNetwork made = make_feed_forward(network, chosen, random);
      Module& layer = std::visit([](auto& held) -> Module& { return held; }, made);
      layer.to(DType::f64);
      const Profile profile;
      const FeedForwardCost cost = feed_forward_cost(network, chosen, kRowCount);
      {
        Tape tape;
        const Tensor input = x.detach();
        tape.watch(input);
        tape.backward(through(made, input), Tensor::full(x.shape(), 1, DType::f64));
      }
      CHECK(cost.parameters == layer.parameter_count());
      const Index ups = gated ? 2 : 1, F = experts.width;
      CHECK(cost.active == cost.parameters - (mixes ? (ups + 1) * kStates * F + ups * F + kStates : 0));
      CHECK(cost.forward_flops == profile.flops(false));
      CHECK(cost.backward_flops == profile.flops(true));
    }
  }
}
