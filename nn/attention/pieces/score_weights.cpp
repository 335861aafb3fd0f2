#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/pieces/score_weights.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {

namespace {

class Sinks : public AttentionPiece {
 public:
  explicit Sinks(Index heads) : sinks_(Tensor::full({heads}, 0)) {}
  void change_scores(AttentionOptions& options, DType type, Index /*T*/, Index /*S*/) const override {
    options.sinks = cast(sinks_, type);
  }
  void visit(ParameterVisitor& visitor) override { visitor.parameter("sinks", sinks_); }

 private:
  Parameter sinks_;
};

/// The shift of sigmoid weights is a bias that all distances share.
class SigmoidWeights : public AttentionPiece {
 public:
  SigmoidWeights(Index heads, Index keys)
      : shift_(Tensor::full({heads}, -std::log(static_cast<double>(keys)))) {}
  void change_scores(AttentionOptions& options, DType type, Index T, Index S) const override {
    options.weighting = AttentionWeighting::sigmoid;
    const Index H = shift_.value().size(0), distances = 2 * std::max<Index>(std::max(T, S), 1) - 1;
    const Tensor shift = reshape(cast(shift_, type), {H, 1});
    Tensor& bias = options.relative_bias;
    bias = bias.defined() ? bias + shift : broadcast_to(shift, {H, distances});
  }
  void visit(ParameterVisitor& visitor) override { visitor.parameter("sigmoid_shift", shift_); }

 private:
  Parameter shift_;
};

}  // namespace

void ScoreWeights::describe(const FieldVisitor& in_models, const FieldVisitor& in_layers) {
  in_models("sinks", sinks, "a learned score for each head whose exponential joins softmax's sum");
  in_models("weighting", named(weighting), "how scores become weights (mha, gqa, mqa): softmax or sigmoid");
  in_layers("sigmoid_keys", sigmoid_keys, kPositiveSize);
}

void ScoreWeights::complete(AttentionConfig& config) {
  if (config.sinks && config.weighting == AttentionWeighting::sigmoid)
    throw Error("[attention] sinks join the sum of a softmax; got attention=" + config.kind +
                ", weighting=sigmoid, sinks=true; try sinks=false");
}

MadePiece ScoreWeights::make(const AttentionConfig& config, Generator& /*random*/) {
  if (config.sinks) return std::make_unique<Sinks>(config.heads);
  if (config.weighting == AttentionWeighting::softmax) return nullptr;
  return std::make_unique<SigmoidWeights>(config.heads, config.sigmoid_keys);
}

void ScoreWeights::add_cost(const AttentionConfig& config, CostSum& sum) {
  const double H = config.heads;
  const bool is_sigmoid = config.weighting == AttentionWeighting::sigmoid;
  if (config.sinks || is_sigmoid) sum.parameters(H);
  if (is_sigmoid) sum.keeps_distances(config, true);
}

PieceCases ScoreWeights::cases() {
  return {{"grouped_query_sinks", "gqa", [](AttentionConfig& c) { c.sinks = true; }},
          {"multi_head_sigmoid", "mha",
           [](AttentionConfig& c) { c.weighting = AttentionWeighting::sigmoid, c.sigmoid_keys = 5; }}};
}

}  // namespace tapeformer
