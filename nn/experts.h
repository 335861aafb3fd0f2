#pragma once

#include <tapeformer/nn/feed_forward.h>
#include <tapeformer/nn/layer_record.h>

#include <variant>

namespace tapeformer {

/// The function that turns a router's logits into scores of experts.
enum class RouterScores { softmax, sigmoid };
template <>
inline constexpr EnumNames kNames<RouterScores>{"[experts] router", {"softmax", "sigmoid"}};

/// The way to give all experts as many tokens: a loss of the router, or a bias of each expert in the choice.
enum class RouterBalance { loss, bias };
template <>
inline constexpr EnumNames kNames<RouterBalance>{"[experts] balance", {"loss", "bias"}};

/// Configuration of the choice among the experts of a feed-forward network.
struct ExpertsConfig {
  Index experts = 0;                            ///< E; 0 for one network that all tokens pass
  Index active = 2;                             ///< K, the experts of each token
  RouterScores router = RouterScores::softmax;  ///< over all experts, or of each by itself
  bool normalized = true;                       ///< the weights of a token's experts sum to 1
  Index shared = 0;                             ///< hidden width of a network that all tokens pass as well
  double balance_loss = 0.01;                   ///< the weight of the loss that balances the load
  double z_loss = 0;                            ///< the weight of the loss that keeps logits small
  bool shared_gate = false;                     ///< a sigmoid of each token on the shared network's output
  RouterBalance balance = RouterBalance::loss;  ///< by the loss, or a bias whose gradient has its weight
  Index width = 0;                              ///< F, hidden width of an expert; 0 for the layers' own
  double scale = 1;                             ///< of the weights
  Index groups = 1, active_groups = 1;  ///< parts of the experts, and the most that a token chooses in

  void describe(const FieldVisitor& field);
  /// Throws: Error naming the fields that do not fit
  void check() const;
  /// True if the router has losses of its own.
  bool has_losses() const { return experts > 0 && (balance_loss > 0 || z_loss > 0); }
};

/// A mixture of experts: feed-forward networks of which each token passes the K with the largest scores. No
/// token is dropped, however many choose the same expert.
/// Math:    s = softmax(router(x)) or sigmoid(router(x)); y = sum over the K largest of w_e expert_e(x), with
///          w = scale s, or normalized scale s / (sum of the K), and with a shared network + shared(x), or
///          with a gate of it + sigmoid(W x) shared(x);
///          groups: the K are in the groups with the largest s, or with sigmoid the largest sums of two s
///          losses, means over tokens: balance_loss E sum_e share_e p_e, of the share of choices and the mean
///          of s (of s / sum s); z_loss (log sum_e exp router(x)_e)^2
///          balance=bias: the K largest of s + bias, whose gradient is balance_loss (E share - 1), of a loss
///          that is 0; an optimizer that divides by its size moves it by a rate, as the source does
/// Shapes:  x [..., C] -> y [..., C]; router [E, C], up [E F, C], or gated [2 E F, C], down [E C, F], each of
///          them with a bias of its rows or without, choice_bias [E]
/// Initial: as FeedForward's; choice_bias 0
/// Units:   the router's logits and scores are f32 next to bf16
/// Throws:  Error, as ExpertsConfig::check() and FeedForward
/// Source:  Shazeer et al. 2017, arXiv:1701.06538; balance: Fedus et al. 2021, arXiv:2101.03961, section 2.2;
///          z: Zoph et al. 2022, arXiv:2202.08906, section 3.2; shared: Dai et al. 2024, arXiv:2401.06066;
///          bias: Wang et al. 2024, arXiv:2408.15664; groups: DeepSeek-AI 2024, arXiv:2412.19437, 2.1.2;
///          gate: Yang et al. 2024, arXiv:2407.10671, section 2.2.2
class Experts : public Module {
 public:
  Experts(const FeedForwardConfig& expert, const ExpertsConfig& config, Generator& random);

  Tensor operator()(const Tensor& x, LayerRecord* record = nullptr) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  ExpertsConfig config_;
  FeedForwardConfig expert_;
  Linear router_;
  Parameter up_, down_, up_bias_, down_bias_, choice_bias_;
  Dropout dropout_;
  std::optional<FeedForward> shared_;
  std::optional<Linear> shared_gate_;
  bool training_ = true;
};

/// The cost of a layer's network in training.
struct FeedForwardCost {
  Index parameters = 0;      ///< trained values
  Index active = 0;          ///< those that a token passes
  Index forward_flops = 0;   ///< of matrix products, 2 for each multiply-add
  Index backward_flops = 0;  ///< likewise
};
/// The cost of make_feed_forward()'s network for N tokens; biases of experts are products with a column of
/// ones.
FeedForwardCost feed_forward_cost(const FeedForwardConfig& network, const ExpertsConfig& experts, Index N);

/// Throws: Error if routers have losses, which the output of a checkpointed layer lacks
void require_no_losses(const char* model, const ExpertsConfig& config);

/// The network of a layer: one for all tokens, or a mixture of experts.
using FeedForwardNetwork = std::variant<FeedForward, Experts>;
/// Throws: Error, as ExpertsConfig::check()
FeedForwardNetwork make_feed_forward(const FeedForwardConfig& network, const ExpertsConfig& experts,
                                     Generator& random);
/// network(x); experts add to `record`.
Tensor through(const FeedForwardNetwork& network, const Tensor& x, LayerRecord* record = nullptr);

}  // namespace tapeformer
