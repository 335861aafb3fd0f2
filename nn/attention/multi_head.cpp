#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/initialization.h>

namespace tapeformer {
namespace {

PackedHeads heads_of(const MultiHeadConfig& config) {
  check_sizes("multi_head",
              {{"memory_width", config.memory_width}, {"value_memory_width", config.value_memory_width}});
  return resolved_heads("multi_head", config.width, config.output_width,
                        {config.heads, config.heads, config.key_width, config.value_width});
}

std::vector<Linear> inputs_of(const MultiHeadConfig& config, const PooledVector<Index>& parts,
                              Generator& random) {
  const Index keys = or_else(config.memory_width, config.width);
  const Index values = or_else(config.value_memory_width, keys);
  const Index widths[] = {config.width, keys, values};
  std::vector<Linear> inputs;
  if (config.packed) {
    if (keys != config.width || values != config.width) {
      throw Error("[multi_head] a packed projection needs inputs of one width; got width=" +
                  std::to_string(config.width) + ", memory_width=" + std::to_string(keys) +
                  ", value_memory_width=" + std::to_string(values) + "; try packed=false");
    }
    inputs.emplace_back(LinearConfig{config.width, parts[0] + parts[1] + parts[2], config.bias, {}}, random);
    return inputs;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    inputs.emplace_back(LinearConfig{widths[i], parts[i], config.bias, {}}, random);
  }
  return inputs;
}

bool same(const Tensor& a, const Tensor& b) { return is_self_attention(a, b); }

}  // namespace

MultiHeadAttention::MultiHeadAttention(const MultiHeadConfig& config, Generator& random)
    : config_(config),
      heads_(heads_of(config)),
      parts_{heads_.heads * heads_.key_width, heads_.heads * heads_.key_width,
             heads_.heads * heads_.value_width},
      inputs_(inputs_of(config, parts_, random)),
      output_({parts_[kValue], or_else(config.output_width, config.width), config.output_bias, {}}, random),
      dropout_({config.dropout}, random) {
  if (config.output_dropout > 0) output_dropout_.emplace(DropoutConfig{config.output_dropout}, random);
  if (config.packed) xavier_uniform_parts(inputs_[0].weight(), parts_, random);
  for (Linear& input : inputs_) {
    if (!config.packed) xavier_uniform(input.weight(), random);
    if (config.bias) input.bias().set_value(Tensor::zeros(input.bias().value().shape()));
  }
  xavier_uniform(output_.weight(), random);
  if (config.output_bias) output_.bias().set_value(Tensor::zeros(output_.bias().value().shape()));
}

Tensor MultiHeadAttention::operator()(const Tensor& query, const Tensor& memory,
                                      const AttentionContext& context) const {
  return (*this)(query, memory, memory, context);
}

Tensor MultiHeadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const AttentionContext& context) const {
  check_inputs("multi_head", query, key, context.cache);
  check_inputs("multi_head", query, value, context.cache);
  if (!config_.sequence_first) return attend(query, key, value, context);
  const Axes swapped{1, 0, 2};
  const auto batch_first = [&](const Tensor& x) { return x.defined() ? permute(x, swapped) : x; };
  const Tensor query_btc = batch_first(query);  // one copy for inputs that are the same
  const Tensor key_bsc = same(query, key) ? query_btc : batch_first(key);
  const Tensor value_bsc = same(key, value) ? key_bsc : batch_first(value);
  return permute(attend(query_btc, key_bsc, value_bsc, context), swapped);
}

Tensor MultiHeadAttention::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const AttentionContext& context) const {
  const bool is_self = same(query, key) && same(key, value);
  if (config_.rotary && !is_self) {
    throw Error("[multi_head] rotary positions are for self-attention; got a memory that is not the query");
  }
  AttentionOptions options = attention_options(context, dropout_);
  const RotaryAngles turns = angles(query, context);
  const bool packs = config_.packed && is_self;
  Tensor packed = packs ? inputs_[0](query) : Tensor();
  if (packs && config_.rotary) {
    packed = packed_rotary(std::move(packed), 2 * heads_.heads, heads_.key_width, turns);
  }
  Tensor heads_bthe;
  if (packs && context.cache == nullptr) {
    heads_bthe = packed_attention(packed, heads_, options);
  } else {
    const TensorList all = packs ? split(packed, -1, parts_) : TensorList();
    const auto part = [&](Part which, const Tensor& x) {
      return split_heads(packs ? all[which] : project(which, x), heads_.heads);
    };
    const auto turned = [&](const Tensor& x_bthd) {
      return config_.rotary && !packs ? rotary(x_bthd, turns) : x_bthd;
    };
    const Tensor query_bthd = turned(part(kQuery, query));
    const KeyValueHeads held = cached_heads(context.cache, is_self, heads_, options, [&] {
      return KeyValueHeads{turned(part(kKey, key)), part(kValue, value)};
    });
    heads_bthe = scaled_dot_product_attention(query_bthd, held.key_bsgd, held.value_bsge, options);
  }
  const Tensor y_btc = output_(merge_heads(heads_bthe));
  return output_dropout_ ? (*output_dropout_)(y_btc) : y_btc;
}

RotaryAngles MultiHeadAttention::angles(const Tensor& query, const AttentionContext& context) const {
  if (!config_.rotary) return {};
  return query_angles(context, query, config_.rotations, heads_.key_width);
}

/// A packed projection stays the same function when the inputs are not: each takes its rows of the matrix.
Tensor MultiHeadAttention::project(Part part, const Tensor& x) const {
  if (!config_.packed) return inputs_[part](x);
  Index from = 0;
  for (int before = 0; before < part; ++before) from += parts_[static_cast<std::size_t>(before)];
  const auto rows = [&](const Parameter& all) { return slice(all, 0, from, parts_[part]); };
  return linear(x, rows(inputs_[0].weight()), config_.bias ? rows(inputs_[0].bias()) : Tensor());
}

void MultiHeadAttention::visit(ParameterVisitor& visitor) {
  if (config_.packed) {
    visitor.child("query_key_value", inputs_[0]);
  } else {
    visitor.child("query", inputs_[kQuery]);
    visitor.child("key", inputs_[kKey]);
    visitor.child("value", inputs_[kValue]);
  }
  visitor.child("output", output_);
  visitor.child("dropout", dropout_);
  if (output_dropout_) visitor.child("output_dropout", *output_dropout_);
}

}  // namespace tapeformer
