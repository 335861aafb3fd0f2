#include <tapeformer/autograd/ops/attention/relative_bias.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/pieces/distance_bias.h>

#include <algorithm>

namespace tapeformer {

namespace {

constexpr double kTableDeviation = 0.02;

class BiasedScores : public AttentionPiece {
 public:
  BiasedScores(const AttentionConfig& config, Generator& random) {
    if (config.relative_bias == RelativeBias::alibi) {
      slopes_ = alibi_slopes(config.heads);
      return;
    }
    table_ = Parameter(Tensor::empty({config.bias_buckets, config.heads}));
    random.fill_normal(table_.value(), 0, kTableDeviation);
    earlier_ids_ = distance_buckets({config.bias_buckets, false, config.bias_distance});
    both_ids_ = distance_buckets({config.bias_buckets, true, config.bias_distance});
  }

  void change_scores(AttentionOptions& options, DType type, Index T, Index S) const override {
    const Index reach = std::max<Index>(std::max(T, S), 1) - 1;
    const Tensor& ids = options.causal ? earlier_ids_ : both_ids_;
    options.relative_bias = slopes_.defined() ? alibi_bias(slopes_.to(type), reach)
                                              : bucketed_bias(cast(table_, type), ids, reach);
  }

  void visit(ParameterVisitor& visitor) override {
    visitor.buffer("slopes", slopes_);
    visitor.buffer("earlier_ids", earlier_ids_);
    visitor.buffer("both_ids", both_ids_);
    visitor.parameter("relative_bias.weight", table_);
  }

 private:
  Tensor slopes_;                  // alibi: [H]
  Parameter table_;                // buckets: [buckets, H]
  Tensor earlier_ids_, both_ids_;  // distance_buckets() where keys are earlier, and in both directions
};

}  // namespace

void DistanceBias::describe(const FieldVisitor& in_models, const FieldVisitor& in_layers) {
  in_layers("relative_bias", named(relative_bias));
  in_models("bias_buckets", bias_buckets, "buckets of distances with positions=buckets", kPositiveSize);
  in_models("bias_distance", bias_distance, "distance from which on all keys share a bucket", kPositiveSize);
}

void DistanceBias::complete(AttentionConfig& config) {
  if (config.cross) config.relative_bias = RelativeBias::none;
  if (config.relative_bias == RelativeBias::buckets)
    for (const bool bidirectional : {false, true})
      distance_buckets({config.bias_buckets, bidirectional, config.bias_distance}, Device::cpu());  // throws
}

MadePiece DistanceBias::make(const AttentionConfig& config, Generator& random) {
  const bool is_none = config.relative_bias == RelativeBias::none;
  return is_none ? nullptr : std::make_unique<BiasedScores>(config, random);
}

void DistanceBias::add_cost(const AttentionConfig& config, CostSum& sum) {
  const bool is_learned = config.relative_bias == RelativeBias::buckets;
  if (config.relative_bias != RelativeBias::none) sum.keeps_distances(config, is_learned);
  if (!is_learned) return;
  sum.parameters(config.heads * config.bias_buckets);
  sum.keeps_ids(2 * config.bias_distance + 1);
}

PieceCases DistanceBias::cases() {
  return {{"grouped_query_alibi", "gqa", [](AttentionConfig& c) { c.relative_bias = RelativeBias::alibi; }},
          {"multi_head_distance_buckets", "mha", [](AttentionConfig& c) {
             c.relative_bias = RelativeBias::buckets, c.bias_buckets = 6, c.bias_distance = 8;
           }}};
}

}  // namespace tapeformer
