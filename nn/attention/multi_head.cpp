#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/initialization.h>

namespace tapeformer {
namespace {

Index head_width(const MultiHeadConfig& config, Index wanted) {
  if (wanted > 0) return wanted;
  if (config.heads < 1 || config.width % config.heads != 0) {
    throw Error("[multi_head] width must be divisible by heads; got width=" + std::to_string(config.width) +
                ", heads=" + std::to_string(config.heads) + "; try a width that is a multiple of the heads");
  }
  return config.width / config.heads;
}

Index memory_width(const MultiHeadConfig& config) {
  return config.memory_width > 0 ? config.memory_width : config.width;
}

LinearConfig projection(const MultiHeadConfig& config, Index inputs, Index outputs) {
  return {inputs, outputs, config.bias, {}};
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const MultiHeadConfig& config, Generator& random)
    : heads_(config.heads),
      key_width_(head_width(config, config.key_width)),
      value_width_(head_width(config, config.value_width)),
      query_(projection(config, config.width, heads_ * key_width_), random),
      key_(projection(config, memory_width(config), heads_ * key_width_), random),
      value_(projection(config, memory_width(config), heads_ * value_width_), random),
      output_(projection(config, heads_ * value_width_, config.width), random),
      dropout_({config.dropout}, random) {
  for (Linear* layer : {&query_, &key_, &value_, &output_}) {
    xavier_uniform(layer->weight(), random);
    if (config.bias) layer->bias().set_value(Tensor::zeros(layer->bias().value().shape()));
  }
}

Tensor MultiHeadAttention::operator()(const Tensor& query, const Tensor& memory,
                                      const AttentionContext& context) const {
  const Index batch = query.size(0), length = query.size(1);
  const Index memory_batch = memory.size(0), memory_length = memory.size(1);
  const Tensor query_bthd = reshape(query_(query), Shape{batch, length, heads_, key_width_});
  const Tensor key_bshd = reshape(key_(memory), Shape{memory_batch, memory_length, heads_, key_width_});
  const Tensor value_bshe = reshape(value_(memory), Shape{memory_batch, memory_length, heads_, value_width_});
  AttentionOptions options(context);
  options.dropout = dropout_.active_probability();
  options.dropout_key = dropout_.next_key();
  options.weights = context.weights;
  const Tensor heads_bthe = scaled_dot_product_attention(query_bthd, key_bshd, value_bshe, options);
  return output_(reshape(heads_bthe, Shape{batch, length, heads_ * value_width_}));
}

void MultiHeadAttention::visit(ParameterVisitor& visitor) {
  visitor.child("query", query_);
  visitor.child("key", key_);
  visitor.child("value", value_);
  visitor.child("output", output_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
