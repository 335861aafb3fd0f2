#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/attention/grouped_query.h>
#include <tapeformer/nn/initialization.h>

namespace tapeformer {
namespace {

PackedHeads heads_of(const GroupedQueryConfig& config) {
  check_sizes("grouped_query", {{"memory_width", config.memory_width}});
  if (config.rotary && config.cross) {
    throw Error("[grouped_query] rotary positions are for self-attention; got rotary and cross both set");
  }
  return resolved_heads("grouped_query", config.width, config.output_width,
                        {config.heads, config.groups, config.key_width, config.value_width});
}

}  // namespace

GroupedQueryAttention::GroupedQueryAttention(const GroupedQueryConfig& config, Generator& random)
    : config_(config),
      heads_(heads_of(config)),
      input_({config.width, config.cross ? heads_.heads * heads_.key_width : heads_.width(), config.bias, {}},
             random),
      output_(
          {heads_.heads * heads_.value_width, or_else(config.output_width, config.width), config.bias, {}},
          random),
      dropout_({config.dropout}, random) {
  const Index queries = heads_.heads * heads_.key_width, keys = heads_.groups * heads_.key_width,
              values = heads_.groups * heads_.value_width;
  if (config.cross) {
    const Index inputs = or_else(config.memory_width, config.width);
    key_value_.emplace(LinearConfig{inputs, keys + values, config.bias, {}}, random);
    xavier_uniform(input_.weight(), random);
    xavier_uniform_parts(key_value_->weight(), {keys, values}, random);
  } else {
    xavier_uniform_parts(input_.weight(), {queries, keys, values}, random);
  }
  xavier_uniform(output_.weight(), random);
  for (Linear* layer : {&input_, key_value_ ? &*key_value_ : nullptr, &output_}) {
    if (layer == nullptr || !config.bias) continue;
    layer->bias().set_value(Tensor::zeros(layer->bias().value().shape()));
  }
}

Tensor GroupedQueryAttention::operator()(const Tensor& query, const Tensor& memory,
                                         const AttentionContext& context) const {
  check_inputs("grouped_query", query, memory, context.cache);
  if (!config_.cross && !is_self_attention(query, memory)) {
    throw Error("[grouped_query] a layer without cross set attends to its own input; got query=" +
                query.describe() + " and another memory; try cross=true in its config");
  }
  const Index H = heads_.heads, G = heads_.groups, D = heads_.key_width, E = heads_.value_width;
  AttentionOptions options = attention_options(context, dropout_);
  Tensor input_btn = input_(query);
  if (config_.rotary) {
    input_btn = packed_rotary(std::move(input_btn), H + G, D, angles(query, context));
  }
  Tensor heads_bthe;
  if (!config_.cross && context.cache == nullptr) {
    heads_bthe = packed_attention(input_btn, heads_, options);
  } else {
    const KeyValueHeads held = cached_heads(context.cache, !config_.cross, heads_, options, [&] {
      const Tensor packed_bsn = config_.cross ? (*key_value_)(memory) : input_btn;
      const Index from = config_.cross ? 0 : H * D;
      return KeyValueHeads{heads_at(packed_bsn, from, G, D), heads_at(packed_bsn, from + G * D, G, E)};
    });
    heads_bthe =
        scaled_dot_product_attention(heads_at(input_btn, 0, H, D), held.key_bsgd, held.value_bsge, options);
  }
  return output_(merge_heads(heads_bthe));
}

RotaryAngles GroupedQueryAttention::angles(const Tensor& query, const AttentionContext& context) const {
  return config_.rotary ? query_angles(context, query, config_.rotations, heads_.key_width) : RotaryAngles();
}

void GroupedQueryAttention::visit(ParameterVisitor& visitor) {
  visitor.child(config_.cross ? "query" : "query_key_value", input_);
  if (key_value_) visitor.child("key_value", *key_value_);
  visitor.child("output", output_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
