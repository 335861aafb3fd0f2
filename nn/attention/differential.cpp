#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/differential.h>
#include <tapeformer/nn/initialization.h>

namespace tapeformer {
namespace {

constexpr double kInitialLambda = 0.8;

LinearConfig plain(Index inputs, Index outputs) { return {inputs, outputs, false, {}}; }

}  // namespace

AttentionKind DifferentialAttention::kind() {
  AttentionKind kind{"differential", "differential", [](const AttentionConfig& config, Generator& random) {
                       return std::make_unique<DifferentialAttention>(config, random);
                     }};
  kind.own = {{{"window", "keys that a query sees, up to its own; 0 for all", kSize}, 0}};
  return kind;
}

DifferentialAttention::DifferentialAttention(const AttentionConfig& config, Generator& random)
    : config_(config.resolved_as("differential")),
      heads_{config_.heads, config_.heads, 2 * config_.key_width, config_.value_width},
      query_(plain(config_.width, heads_.heads * heads_.key_width), random),
      key_(plain(config_.memory_width, heads_.heads * heads_.key_width), random),
      value_(plain(config_.memory_width, heads_.heads * heads_.value_width), random),
      output_(plain(heads_.heads * heads_.value_width, config_.output_width), random),
      lambda_(Tensor::empty({4, config_.key_width})),
      norm_({heads_.value_width}),
      dropout_({config_.dropout}, random) {
  for (Linear* layer : {&query_, &key_, &value_, &output_}) xavier_uniform(layer->weight(), random);
  random.fill_normal(lambda_.value(), 0, 0.1);
}

Tensor DifferentialAttention::operator()(const Tensor& query, const Tensor& memory,
                                         const AttentionContext& context) const {
  check_inputs("differential", query, memory, context.cache);
  AttentionOptions options = attention_options(context, dropout_);
  const Index H = heads_.heads, D = config_.key_width;
  const Tensor query_bthd = split_heads(query_(query), H);
  const KeyValueHeads held = cached_heads(context.cache, is_same_tensor(query, memory), heads_, options, [&] {
    return KeyValueHeads{split_heads(key_(memory), H), split_heads(value_(memory), H)};
  });
  if (const auto window = static_cast<Index>(config_.own.at("window")); window > 0)
    options.window_before = window - 1;
  Tensor weights[2];
  const auto attended = [&](int map) {
    AttentionOptions own = options;
    if (map > 0) own.dropout_key = dropout_.next_key();
    if (context.weights != nullptr) own.weights = &weights[map];
    return scaled_dot_product_attention(slice(query_bthd, 3, map * D, D), slice(held.key_bsgd, 3, map * D, D),
                                        held.value_bsge, own);
  };
  const auto exponential = [&](Index row) {
    return exp(sum(slice(lambda_, 0, row, 1) * slice(lambda_, 0, row + 1, 1)));
  };
  const Tensor lambda = exponential(0) - exponential(2) + kInitialLambda;
  const Tensor first_bthe = attended(0);
  const Tensor heads_bthe = norm_(first_bthe - lambda * attended(1)) * (1 - kInitialLambda);
  if (context.weights != nullptr) *context.weights = weights[0] - lambda * weights[1];
  return output_(merge_heads(heads_bthe));
}

void DifferentialAttention::visit(ParameterVisitor& visitor) {
  visitor.child("query", query_);
  visitor.child("key", key_);
  visitor.child("value", value_);
  visitor.parameter("lambda", lambda_);
  visitor.child("norm", norm_);
  visitor.child("output", output_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
