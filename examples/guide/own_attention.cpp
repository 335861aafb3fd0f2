// A kind of attention of your own, which models, files and options then know like those that are built in.
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/optim/adamw.h>

#include <algorithm>
#include <cstdio>

using namespace tapeformer;

/// Self-attention whose heads learn how much they like each distance; all beyond `reach` are alike.
/// Math:    score_h(t, s) = q_h,t . k_h,s / sqrt(D) + bias_h,min(|t - s|, reach)
/// Shapes:  x [B, T, C] -> y [B, T, C]
/// Initial: bias 0
/// Source:  a plain form of Raffel et al. 2020, arXiv:1910.10683, section 2.1
class DistanceAttention : public Attention {
 public:
  DistanceAttention(const AttentionConfig& config, Generator& random)
      : heads_(config.heads),
        reach_(static_cast<Index>(config.resolved().own.at("reach"))),
        query_({config.width, config.width}, random),
        key_({config.width, config.width, false}, random),
        value_({config.width, config.width}, random),
        output_({config.width, config.width}, random),
        bias_(Tensor::zeros({heads_, reach_ + 1})),
        dropout_({config.dropout}, random) {}

  Tensor operator()(const Tensor& x_btc, const Tensor& memory,
                    const AttentionContext& context = {}) const override {
    if (!is_same_tensor(x_btc, memory) || context.mask.defined())
      throw Error("[distance] attends to its own input alone, and without a mask of pairs");
    AttentionOptions options = attention_options(context, dropout_);
    options.mask = biases(x_btc.size(1));
    return output_(merge_heads(scaled_dot_product_attention(split_heads(query_(x_btc), heads_),
                                                            split_heads(key_(x_btc), heads_),
                                                            split_heads(value_(x_btc), heads_), options)));
  }
  CacheWidths cache_widths() const override { return {}; }
  void visit(ParameterVisitor& visitor) override {
    visitor.child("query", query_);
    visitor.child("key", key_);
    visitor.child("value", value_);
    visitor.child("output", output_);
    visitor.parameter("bias", bias_);
    visitor.child("dropout", dropout_);
  }

 private:
  /// The bias of every pair, [H, T, T].
  Tensor biases(Index T) const {
    std::vector<std::int32_t> distances;
    for (Index i = 0; i < heads_ * T * T; ++i) {
      const Index t = i / T % T, s = i % T;
      distances.push_back(static_cast<std::int32_t>(std::min(std::max(t - s, s - t), reach_)));
    }
    return reshape(gather(bias_, 1, Tensor::from(distances, {heads_, T * T})), {heads_, T, T});
  }

  Index heads_, reach_;
  Linear query_, key_, value_, output_;
  Parameter bias_;  // [H, reach + 1]
  Dropout dropout_;
};

AttentionKind distance_kind() {
  AttentionKind kind;
  kind.name = "distance";
  kind.title = "with a learned bias for each distance";
  kind.make = [](const AttentionConfig& config, Generator& random) {
    return std::make_unique<DistanceAttention>(config, random);
  };
  kind.can = kCanModelLanguage;
  kind.own = {{{"reach", "the largest distance with a bias of its own", kPositiveSize}, 8}};
  return kind;
}

bool gradients_are_right() {
  Generator random(1);
  AttentionConfig config;
  config.kind = "distance", config.width = 4, config.heads = 2, config.own["reach"] = 2;
  const auto attention = make_attention(config, random);
  attention->to(DType::f64);
  const Tensor x_btc = Tensor::randn({1, 4, 4}, random, DType::f64);
  AttentionContext context;
  context.causal = true;
  auto inputs = weights_of(*attention);
  inputs.emplace_back("x", x_btc);
  return gradcheck([&] { return (*attention)(x_btc, x_btc, context); }, inputs).passed();
}

int main() {
  register_attention_kind(distance_kind());
  const bool right = gradients_are_right();
  std::printf("gradients: %s\n", right ? "passed" : "FAILED");

  // A language model of it learns to repeat the token of three places ago.
  DecoderOnlyConfig config;
  config.vocabulary = 7, config.context = 12, config.layers = 1, config.width = 32;
  config.attention.kind = "distance", config.attention.heads = 2, config.attention.own["reach"] = 4;
  Generator random(1);
  DecoderOnly model(config, random);
  AdamW optimizer(model.parameters());
  double loss = 0;
  for (int step = 0; step < 300; ++step) {
    std::vector<std::int32_t> ids, targets;
    for (Index i = 0; i < 16 * config.context; ++i) {
      const Index t = i % config.context;
      ids.push_back(static_cast<std::int32_t>(random.below(config.vocabulary)));
      targets.push_back(ids[static_cast<std::size_t>(i - std::min<Index>(t, 3))]);
    }
    optimizer.clear_gradients();
    Tape tape;
    const Tensor y =
        model.loss(Tensor::from(ids, {16, config.context}), Tensor::from(targets, {16, config.context}));
    tape.backward(y);
    optimizer.step(1e-2);
    loss = y.item();
  }
  std::printf("loss after 300 steps: %.1f nats per token\n", loss);
  return right && loss < 0.1 ? 0 : 1;
}
