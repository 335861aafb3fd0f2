#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/experts.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/nn/experts.h>
#include <tapeformer/nn/initialization.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// Scales rows to sum to 1. Sigmoids that are all 0 stay so, as in transformers.
Tensor shares_of(const Tensor& scores) {
  constexpr double kSmallest = 1e-20;
  return scores / (sum(scores, {1}, true) + kSmallest);
}

FeedForwardConfig with_hidden(FeedForwardConfig config, Index hidden) {
  config.hidden = hidden;
  return config;
}

/// y, or with a bias of the experts y plus that of each row's expert: a product with a column of ones.
Tensor biased(const Tensor& y, const Parameter& bias, const ExpertChoice& choice) {
  if (!bias.defined()) return y;
  const Tensor ones = Tensor::full({y.size(0), 1}, 1, y.dtype(), y.device());
  return y + expert_linear(ones, reshape(bias, {-1, y.size(1), 1}), choice.starts);
}

}  // namespace

void ExpertsConfig::describe(const FieldVisitor& field) {
  const FieldVisitor in_part = field.in_part("experts");
  in_part("experts", experts,
          "E, feed-forward networks of each layer, of which a router chooses some for each token; 0 for one "
          "network for all tokens",
          kSize);
  in_part("active_experts", active, "K, the experts of each token", kPositiveSize);
  in_part("router", named(router), "softmax (over all experts) or sigmoid (of each by itself): their scores");
  in_part("normalized_router", normalized, "scale the weights of a token's experts to sum to 1");
  in_part("shared_expert", shared, "hidden width of a network that all tokens pass as well; 0 for none",
          kSize);
  in_part("shared_expert_gate", shared_gate,
          "multiply the output of that network by a sigmoid of a projection of each token");
  in_part("balance_loss", balance_loss, "weight of the loss that gives all experts as many tokens",
          kNotNegative);
  in_part("router_z_loss", z_loss, "weight of the loss that keeps the router's logits small", kNotNegative);
  in_part(
      "balance", named(balance),
      "loss, or bias (of each expert in the choice alone, in training by balance_loss): it gives all experts "
      "as many tokens");
  in_part("expert_width", width, "hidden width of an expert; 0 for feed_forward", kSize);
  in_part("router_scale", scale, "factor of the weights of a token's experts", kPositive);
  in_part("expert_groups", groups, "equal parts of the experts, in a few of which each token chooses",
          kPositiveSize);
  in_part("active_groups", active_groups, "the most parts in which a token chooses", kPositiveSize);
}

void ExpertsConfig::check() const {
  if (experts > 0 && shared_gate && shared == 0)
    throw Error(
        "[experts] shared_expert_gate needs a shared network; got shared_expert=0; try shared_expert=256");
  if (experts > 0 && active > experts)
    throw Error(format("[experts] active_experts must be at most experts; got active_experts={}, experts={}",
                       active, experts));
  const Index in_group = experts / std::max<Index>(groups, 1);
  if (experts > 0 && (in_group * groups != experts || active_groups > groups ||
                      active_groups * in_group < active || (router == RouterScores::sigmoid && in_group < 2)))
    throw Error(
        format("[experts] expert_groups must divide experts into active_groups of them or more, with "
               "active_experts in those (two in each with router=sigmoid); got experts={}, expert_groups={}, "
               "active_groups={}, active_experts={}",
               experts, groups, active_groups, active));
}

Experts::Experts(const FeedForwardConfig& expert, const ExpertsConfig& config, Generator& random)
    : config_(config),
      expert_(with_hidden(expert, config.width > 0 ? config.width : expert.hidden_width())),
      router_({expert.width, config.experts, expert.bias, {}}, random),
      up_(Tensor::empty({config.experts * expert_.hidden * (expert.gated ? 2 : 1), expert.width})),
      down_(Tensor::empty({config.experts * expert.width, expert_.hidden})),
      dropout_({expert.dropout}, random) {
  config.check();
  expert.swiglu.check(expert.activation, expert.gated);
  torch_linear_default(up_, expert.width, random);
  torch_linear_default(down_, expert_.hidden, random);
  if (expert.bias) {
    up_bias_ = Parameter(Tensor::empty({up_.value().size(0)}));
    down_bias_ = Parameter(Tensor::empty({down_.value().size(0)}));
    torch_linear_default(up_bias_, expert.width, random);
    torch_linear_default(down_bias_, expert_.hidden, random);
  }
  if (config.shared > 0) shared_.emplace(with_hidden(expert, config.shared), random);
  if (config.shared_gate) shared_gate_.emplace(LinearConfig{expert.width, 1, false, Unary::sigmoid}, random);
  if (config.balance != RouterBalance::bias) return;
  choice_bias_ = Parameter(Tensor::zeros({config.experts}));
  if (config.balance_loss == 0) choice_bias_.set_trainable(false);
}

Tensor Experts::operator()(const Tensor& x, LayerRecord* record) const {
  const Index E = config_.experts, C = expert_.width;
  const Tensor x_nc = reshape(x, {-1, C}), logits_ne = cast(router_(x_nc), wide(x.dtype()));
  const Tensor scores_ne = config_.router == RouterScores::softmax ? softmax(logits_ne) : sigmoid(logits_ne);
  const bool has_bias = choice_bias_.defined();
  const Tensor biased_ne = has_bias ? scores_ne.detach() + choice_bias_.value().detach() : scores_ne;
  const ExpertChoice choice =
      choose_experts(biased_ne, config_.active,
                     {config_.groups, config_.active_groups, config_.router == RouterScores::sigmoid});

  const Tensor rows_mc = embedding(x_nc, choice.tokens);
  const Tensor up_mf =
      biased(expert_linear(rows_mc, reshape(up_, {E, -1, C}), choice.starts), up_bias_, choice);
  const Tensor hidden_mf = dropout_(expert_.gated ? expert_.gate(up_mf) : unary(expert_.activation, up_mf));
  const Tensor y_mc =
      biased(expert_linear(hidden_mf, reshape(down_, {E, C, -1}), choice.starts), down_bias_, choice);

  Tensor weights_nk1 = embedding(reshape(scores_ne, {-1, 1}), choice.places);
  if (config_.normalized) weights_nk1 = shares_of(weights_nk1);
  if (config_.scale != 1) weights_nk1 = weights_nk1 * config_.scale;
  Tensor y_nc = sum(embedding(y_mc, choice.rows) * cast(weights_nk1, x.dtype()), {1});
  if (shared_) {
    const Tensor shared_nc = (*shared_)(x_nc);
    y_nc = y_nc + (shared_gate_ ? shared_nc * (*shared_gate_)(x_nc) : shared_nc);
  }

  if (record != nullptr) record->shares.push_back(choice.shares);
  if (record != nullptr && training_) {
    const auto add_loss = [&](double weight, const Tensor& loss) {
      if (weight <= 0) return;
      Tensor& losses = record->router_losses;
      losses = losses.defined() ? losses + weight * loss : weight * loss;
    };
    const Tensor shares_ne = shares_of(scores_ne);
    const auto count = static_cast<double>(E);
    if (has_bias) {
      const Tensor bias = cast(choice_bias_, scores_ne.dtype());
      add_loss(config_.balance_loss, sum((bias - bias.detach()) * (choice.shares * count - 1)));
    } else {
      add_loss(config_.balance_loss * count, sum(choice.shares * mean(shares_ne, {0})));
    }
    const Tensor log_sums_n = mean(logits_ne - log_softmax(logits_ne), {1});
    add_loss(config_.z_loss, mean(log_sums_n * log_sums_n));
  }
  return reshape(y_nc, x.shape());
}

void Experts::visit(ParameterVisitor& visitor) {
  const auto matrices = [&](const char* name, Parameter& parameter, Index rows) {
    visitor.parameter(name, parameter);
    visitor.row_parts(name,
                      std::vector<Index>(static_cast<std::size_t>(parameter.value().size(0) / rows), rows));
  };
  visitor.child("router", router_);
  matrices("up.weight", up_, expert_.hidden);
  matrices("down.weight", down_, expert_.width);
  if (up_bias_.defined()) {
    visitor.parameter("up.bias", up_bias_);
    visitor.parameter("down.bias", down_bias_);
  }
  visitor.child("dropout", dropout_);
  if (shared_) visitor.child("shared", *shared_);
  if (shared_gate_) visitor.child("shared_gate", *shared_gate_);
  if (choice_bias_.defined()) visitor.parameter("choice_bias", choice_bias_);
  visitor.training_mode(training_);
}

FeedForwardCost feed_forward_cost(const FeedForwardConfig& network, const ExpertsConfig& experts, Index N) {
  const Index C = network.width, E = experts.experts, ups = network.gated ? 2 : 1;
  const auto weights = [&](Index hidden) { return (ups + 1) * C * hidden; };
  const auto biases = [&](Index hidden) { return network.bias ? ups * hidden + C : 0; };
  Index hidden = network.hidden_width();
  FeedForwardCost cost;
  Index products = weights(hidden), ones = 0;
  cost.active = products + biases(hidden);
  if (E > 0) {
    if (experts.width > 0) hidden = experts.width;
    products =
        C * E + experts.active * weights(hidden) + weights(experts.shared) + (experts.shared_gate ? C : 0);
    ones = experts.active * biases(hidden);
    cost.active = products + ones + (network.bias ? E : 0) +
                  (experts.shared > 0 ? biases(experts.shared) : 0) +
                  (experts.balance == RouterBalance::bias ? E : 0);
  }
  cost.parameters = cost.active + (E > 0 ? E - experts.active : 0) * (weights(hidden) + biases(hidden));
  cost.forward_flops = 2 * N * (products + ones), cost.backward_flops = 2 * N * (2 * products + ones);
  return cost;
}

void require_no_losses(const char* model, const ExpertsConfig& config) {
  if (config.has_losses())
    throw Error(
        format("[{}] activation checkpointing needs routers without losses; got balance_loss={}, "
               "router_z_loss={}; try 0 for both",
               model, value_text(config.balance_loss), value_text(config.z_loss)));
}

FeedForwardNetwork make_feed_forward(const FeedForwardConfig& network, const ExpertsConfig& experts,
                                     Generator& random) {
  if (experts.experts > 0) return Experts(network, experts, random);
  return FeedForward(network, random);
}

Tensor through(const FeedForwardNetwork& network, const Tensor& x, LayerRecord* record) {
  const auto* const experts = std::get_if<Experts>(&network);
  return experts != nullptr ? (*experts)(x, record) : std::get<FeedForward>(network)(x);
}

}  // namespace tapeformer
