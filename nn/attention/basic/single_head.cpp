#include <tapeformer/nn/attention/basic/single_head.h>

namespace tapeformer {
namespace {

PackedHeads one_head(const SingleHeadConfig& config) {
  const Index value_width = config.value_width == 0 ? config.key_width : config.value_width;
  return resolved_heads("single_head", config.width, 0, {1, 1, config.key_width, value_width});
}

Index memory_width(const SingleHeadConfig& config) {
  return config.memory_width == 0 ? config.width : config.memory_width;
}

}  // namespace

SingleHeadAttention::SingleHeadAttention(const SingleHeadConfig& config, Generator& random)
    : head_(one_head(config)),
      scale_(config.scale),
      causal_(config.causal),
      query_({config.width, head_.key_width, config.bias, {}}, random),
      key_({memory_width(config), head_.key_width, config.bias, {}}, random),
      value_({memory_width(config), head_.value_width, config.bias, {}}, random),
      dropout_({config.dropout}, random) {}

Tensor SingleHeadAttention::operator()(const Tensor& query, const Tensor& memory,
                                       const AttentionContext& context) const {
  check_inputs("single_head", query, memory, context.cache);
  AttentionOptions options = attention_options(context, dropout_);
  options.scale = scale_;
  options.causal = causal_ || context.causal;
  const Tensor query_bt1d = split_heads(query_(query), 1);
  const KeyValueHeads kv = cached_heads(context.cache, is_same_tensor(query, memory), head_, options, [&] {
    return KeyValueHeads{split_heads(key_(memory), 1), split_heads(value_(memory), 1)};
  });
  const Tensor y_bt1e = scaled_dot_product_attention(query_bt1d, kv.key_bsgd, kv.value_bsge, options);
  return merge_heads(y_bt1e);
}

void SingleHeadAttention::visit(ParameterVisitor& visitor) {
  visitor.child("query", query_);
  visitor.child("key", key_);
  visitor.child("value", value_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
