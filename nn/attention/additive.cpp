#include <tapeformer/autograd/ops/additive_attention.h>
#include <tapeformer/nn/attention/additive.h>
#include <tapeformer/nn/initialization.h>

#include <cmath>

namespace tapeformer {
namespace {

PackedHeads heads_of(const AdditiveConfig& config) {
  check_sizes("additive", {{"memory_width", config.memory_width}, {"hidden_width", config.hidden_width}});
  return resolved_heads("additive", config.width, config.output_width,
                        {config.heads, config.heads, config.hidden_width, config.value_width});
}

LinearConfig from_memory(const AdditiveConfig& config, Index outputs, bool bias) {
  return {or_else(config.memory_width, config.width), outputs, bias, {}};
}

}  // namespace

AdditiveAttention::AdditiveAttention(const AdditiveConfig& config, Generator& random)
    : heads_(heads_of(config)),
      query_({config.width, heads_.heads * heads_.key_width, config.bias, {}}, random),
      key_(from_memory(config, heads_.heads * heads_.key_width, false), random),
      value_(from_memory(config, heads_.heads * heads_.value_width, config.bias), random),
      output_(
          {heads_.heads * heads_.value_width, or_else(config.output_width, config.width), config.bias, {}},
          random),
      score_(Tensor::empty({heads_.heads, heads_.key_width})),
      dropout_({config.dropout}, random) {
  for (Linear* layer : {&query_, &key_, &value_, &output_}) xavier_uniform(layer->weight(), random);
  const double bound = std::sqrt(6.0 / static_cast<double>(heads_.key_width + 1));
  random.fill_uniform(score_.value(), -bound, bound);
  if (!config.bias) return;
  for (Linear* layer : {&query_, &value_, &output_}) {
    layer->bias().set_value(Tensor::zeros(layer->bias().value().shape()));
  }
}

Tensor AdditiveAttention::operator()(const Tensor& query, const Tensor& memory,
                                     const AttentionContext& context) const {
  check_inputs("additive", query, memory, context.cache);
  AttentionOptions options = attention_options(context, dropout_);
  const Tensor query_bthd = split_heads(query_(query), heads_.heads);
  const KeyValueHeads held =
      cached_heads(context.cache, is_self_attention(query, memory), heads_, options, [&] {
        return KeyValueHeads{split_heads(key_(memory), heads_.heads),
                             split_heads(value_(memory), heads_.heads)};
      });
  const Tensor heads_bthe = additive_attention(query_bthd, held.key_bsgd, held.value_bsge, score_, options);
  return output_(merge_heads(heads_bthe));
}

void AdditiveAttention::visit(ParameterVisitor& visitor) {
  visitor.child("query", query_);
  visitor.child("key", key_);
  visitor.child("value", value_);
  visitor.parameter("score", score_);
  visitor.child("output", output_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
