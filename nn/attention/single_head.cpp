#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/single_head.h>

namespace tapeformer {
namespace {

PackedHeads one_head(const SingleHeadConfig& config) {
  const Index key_width = config.key_width > 0 ? config.key_width : config.width;
  return {1, 1, key_width, config.value_width > 0 ? config.value_width : key_width};
}

Index memory_width(const SingleHeadConfig& config) {
  return config.memory_width > 0 ? config.memory_width : config.width;
}

/// [B, T, D] as [B, T, 1, D].
Tensor as_head(const Tensor& x) { return reshape(x, {x.size(0), x.size(1), 1, x.size(2)}); }

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
  AttentionOptions options = attention_options(context, dropout_);
  options.scale = scale_;
  options.causal = causal_ || context.causal;
  const Tensor query_bt1d = as_head(query_(query));
  const KeyValueHeads held =
      cached_heads(context.cache, is_self_attention(query, memory), head_, options, [&] {
        return KeyValueHeads{as_head(key_(memory)), as_head(value_(memory))};
      });
  const Tensor y_bt1e = scaled_dot_product_attention(query_bt1d, held.key_bsgd, held.value_bsge, options);
  return reshape(y_bt1e, {query.size(0), query.size(1), head_.value_width});
}

void SingleHeadAttention::visit(ParameterVisitor& visitor) {
  visitor.child("query", query_);
  visitor.child("key", key_);
  visitor.child("value", value_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
