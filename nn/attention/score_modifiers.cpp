#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/attention/relative_bias.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/attention/score_modifiers.h>
#include <tapeformer/nn/initialization.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

constexpr double kTableDeviation = 0.02;

bool is_sigmoid(const AttentionConfig& config) { return config.weighting == AttentionWeighting::sigmoid; }

}  // namespace

ScoreModifiers::ScoreModifiers(const AttentionConfig& config, Generator& random) : config_(config) {
  const auto per_head = [&](double value) { return Parameter(Tensor::full({config.heads}, value)); };
  if (config.softcap > 0) softcap_ = Tensor::full({1}, config.softcap, DType::f64);
  if (config.relative_bias == RelativeBias::alibi) {
    slopes_ = alibi_slopes(config.heads);
  } else if (config.relative_bias == RelativeBias::buckets) {
    table_ = Parameter(Tensor::empty({config.bias_buckets, config.heads}));
    normal(table_.value(), random, kTableDeviation);
    earlier_ids_ = distance_buckets({config.bias_buckets, false, config.bias_distance});
    both_ids_ = distance_buckets({config.bias_buckets, true, config.bias_distance});
  }
  if (config.sinks) sinks_ = per_head(0);
  if (is_sigmoid(config)) sigmoid_shift_ = per_head(-std::log(static_cast<double>(config.sigmoid_keys)));
}

void ScoreModifiers::add_to(AttentionOptions& options, DType type, Index queries, Index keys) const {
  type = wide(type);
  if (config_.softcap > 0) {
    options.score_function = ScoreFunction::softcap;
    options.score_parameter = softcap_.to(type);
  }
  if (config_.sinks) options.sinks = cast(sinks_, type);
  options.weighting = config_.weighting;
  options.relative_bias =
      relative_bias(type, std::max<Index>(std::max(queries, keys), 1) - 1, !options.causal);
}

/// The shift of sigmoid weights is a bias that all distances share.
Tensor ScoreModifiers::relative_bias(DType type, Index reach, bool bidirectional) const {
  Tensor bias;
  if (slopes_.defined()) bias = alibi_bias(slopes_.to(type), reach);
  if (table_.defined())
    bias = bucketed_bias(cast(table_, type), bidirectional ? both_ids_ : earlier_ids_, reach);
  if (!sigmoid_shift_.defined()) return bias;
  const Tensor shift = reshape(cast(sigmoid_shift_, type), {config_.heads, 1});
  return bias.defined() ? bias + shift : broadcast_to(shift, {config_.heads, 2 * reach + 1});
}

void ScoreModifiers::visit(ParameterVisitor& visitor) {
  visitor.buffer("softcap_constant", softcap_);
  visitor.buffer("slopes", slopes_);
  visitor.buffer("earlier_ids", earlier_ids_);
  visitor.buffer("both_ids", both_ids_);
  visitor.parameter("relative_bias.weight", table_);
  visitor.parameter("sinks", sinks_);
  visitor.parameter("sigmoid_shift", sigmoid_shift_);
}

void ScoreModifiers::complete(AttentionConfig& config) {
  if (config.cross) config.relative_bias = RelativeBias::none;
  const auto require = [&](bool holds, const char* rule, const char* got, const char* remedy) {
    if (holds) return;
    throw Error(std::string("[attention] ") + rule + "; got attention=" + config.kind + ", " + got +
                "; try " + remedy);
  };
  require(!config.sinks || !is_sigmoid(config), "sinks join the sum of a softmax",
          "weighting=sigmoid, sinks=true", "sinks=false");
  if (config.relative_bias == RelativeBias::buckets)
    distance_buckets({config.bias_buckets, true, config.bias_distance}, Device::cpu());  // throws
}

void ScoreModifiers::add_cost(const AttentionConfig& config, const AttentionCall& call, CostSum& sum) {
  const double H = static_cast<double>(config.heads);
  const auto T = static_cast<double>(std::max(call.queries, call.keys));
  sum.parameters((config.sinks ? H : 0) + (is_sigmoid(config) ? H : 0));
  if (config.relative_bias == RelativeBias::buckets)
    sum.parameters(H * static_cast<double>(config.bias_buckets));
  const bool has_bias = config.relative_bias != RelativeBias::none || is_sigmoid(config);
  if (has_bias) sum.keeps_wide(H * (2 * T - 1) + sum.N);
  if (config.softcap > 0) sum.keeps_wide(1);
}

}  // namespace tapeformer
