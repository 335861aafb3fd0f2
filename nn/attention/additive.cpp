#include <tapeformer/autograd/ops/additive_attention.h>
#include <tapeformer/nn/attention/additive.h>
#include <tapeformer/nn/initialization.h>

#include <cmath>

namespace tapeformer {

AdditiveAttention::AdditiveAttention(const AttentionConfig& config, Generator& random)
    : config_(config.resolved()),
      heads_{config_.heads, config_.heads, config_.key_width, config_.value_width},
      query_({config_.width, heads_.heads * heads_.key_width, config_.bias, {}}, random),
      key_({config_.memory_width, heads_.heads * heads_.key_width, false, {}}, random),
      value_({config_.memory_width, heads_.heads * heads_.value_width, config_.bias, {}}, random),
      output_({heads_.heads * heads_.value_width, config_.output_width, config_.bias, {}}, random),
      score_(Tensor::empty({heads_.heads, heads_.key_width})),
      dropout_({config_.dropout}, random) {
  for (Linear* layer : {&query_, &key_, &value_, &output_}) xavier_uniform(layer->weight(), random);
  const double bound = std::sqrt(6.0 / static_cast<double>(heads_.key_width + 1));
  random.fill_uniform(score_.value(), -bound, bound);
  for (Linear* layer : {&query_, &value_, &output_}) clear_bias(*layer);
}

Tensor AdditiveAttention::operator()(const Tensor& query, const Tensor& memory,
                                     const AttentionContext& context) const {
  check_inputs("additive", query, memory, context.cache);
  AttentionOptions options = attention_options(context, dropout_);
  const Tensor query_bthd = split_heads(query_(query), heads_.heads);
  const KeyValueHeads kv = cached_heads(context.cache, is_same_tensor(query, memory), heads_, options, [&] {
    return KeyValueHeads{split_heads(key_(memory), heads_.heads), split_heads(value_(memory), heads_.heads)};
  });
  const Tensor heads_bthe = additive_attention(query_bthd, kv.key_bsgd, kv.value_bsge, score_, options);
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

void AdditiveAttention::add_cost(const AttentionConfig& config, CostSum& sum) {
  const double C = config.width, memory = config.memory_width, H = config.heads, D = config.key_width,
               E = config.value_width, N = sum.N, M = sum.M;
  sum.projection(N, C, H * D, config.bias);
  sum.projection(M, memory, H * D, false);
  sum.projection(M, memory, H * E, config.bias);
  sum.projection(N, H * E, config.output_width, config.bias);
  sum.parameters(H * D);
  sum.attention(H, D, E, 4);
  sum.keeps(N * (C + H * D + H * E) + M * H * (D + E));
  if (sum.call.keys > 0) sum.keeps(M * memory);
  sum.caches(H * (D + E));
}

}  // namespace tapeformer
