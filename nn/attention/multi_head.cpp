#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/initialization.h>

namespace tapeformer {
namespace {

void require(bool holds, const std::string& rule) {
  if (!holds) throw Error("[multi_head] " + rule);
}

PackedHeads heads_of(const MultiHeadConfig& config) {
  require(config.heads > 0, "heads must be positive; got heads=" + std::to_string(config.heads));
  require((config.key_width > 0 && config.value_width > 0) || config.width % config.heads == 0,
          "width must be divisible by heads; got width=" + std::to_string(config.width) +
              ", heads=" + std::to_string(config.heads) + "; try a width that is a multiple of the heads");
  const Index width = config.width / config.heads;
  return {config.heads, config.heads, config.key_width > 0 ? config.key_width : width,
          config.value_width > 0 ? config.value_width : width};
}

std::vector<Linear> inputs_of(const MultiHeadConfig& config, const PooledVector<Index>& parts,
                              Generator& random) {
  const Index keys = config.memory_width > 0 ? config.memory_width : config.width;
  const Index values = config.value_memory_width > 0 ? config.value_memory_width : keys;
  const Index widths[] = {config.width, keys, values};
  std::vector<Linear> inputs;
  if (config.packed) {
    require(keys == config.width && values == config.width,
            "a packed projection needs inputs of one width; got width=" + std::to_string(config.width) +
                ", memory_width=" + std::to_string(keys) + ", value_memory_width=" + std::to_string(values) +
                "; try packed=false");
    inputs.emplace_back(LinearConfig{config.width, parts[0] + parts[1] + parts[2], config.bias, {}}, random);
    return inputs;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    inputs.emplace_back(LinearConfig{widths[i], parts[i], config.bias, {}}, random);
  }
  return inputs;
}

Tensor by_heads(const Tensor& x, Index heads) {
  return reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads});
}

bool same(const Tensor& a, const Tensor& b) { return is_self_attention(a, b); }

}  // namespace

MultiHeadAttention::MultiHeadAttention(const MultiHeadConfig& config, Generator& random)
    : config_(config),
      heads_(heads_of(config)),
      parts_{heads_.heads * heads_.key_width, heads_.heads * heads_.key_width,
             heads_.heads * heads_.value_width},
      inputs_(inputs_of(config, parts_, random)),
      output_({parts_[kValue], config.width, config.output_bias, {}}, random),
      dropout_({config.dropout}, random) {
  if (config.output_dropout > 0) output_dropout_.emplace(DropoutConfig{config.output_dropout}, random);
  if (config.packed) xavier_uniform_parts(inputs_[0].weight(), parts_, random);
  for (Linear& input : inputs_) {
    if (!config.packed) xavier_uniform(input.weight(), random);
    if (config.bias) input.bias().set_value(Tensor::zeros(input.bias().value().shape()));
  }
  xavier_uniform(output_.weight(), random);
  if (config.output_bias) output_.bias().set_value(Tensor::zeros({config.width}));
}

Tensor MultiHeadAttention::operator()(const Tensor& query, const Tensor& memory,
                                      const AttentionContext& context) const {
  return (*this)(query, memory, memory, context);
}

Tensor MultiHeadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const AttentionContext& context) const {
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
  if (query.rank() != 3) {
    throw ShapeError("[multi_head] inputs must be [B, T, C]; got query=" + query.describe());
  }
  if (config_.rotary && !is_self) {
    throw Error("[multi_head] rotary positions are for self-attention; got a memory that is not the query");
  }
  AttentionOptions options = attention_options(context, dropout_);
  const Tensor positions = config_.rotary ? query_positions(context, query.size(1)) : Tensor();
  Tensor heads_bthe;
  if (config_.packed && is_self && context.cache == nullptr) {
    Tensor packed = inputs_[0](query);
    if (config_.rotary) {
      packed = packed_rotary(packed, 2 * heads_.heads, heads_.key_width, positions, config_.rotations);
    }
    heads_bthe = packed_attention(packed, heads_, options);
  } else {
    const TensorList all = config_.packed && is_self ? split(inputs_[0](query), -1, parts_) : TensorList();
    const auto part = [&](Part which, const Tensor& x) {
      return by_heads(all.empty() ? project(which, x) : all[which], heads_.heads);
    };
    const auto turned = [&](const Tensor& x_bthd) {
      return config_.rotary ? rotary(x_bthd, positions, config_.rotations) : x_bthd;
    };
    const Tensor query_bthd = turned(part(kQuery, query));
    const KeyValueHeads held = cached_heads(context.cache, is_self, heads_, options, [&] {
      return KeyValueHeads{turned(part(kKey, key)), part(kValue, value)};
    });
    heads_bthe = scaled_dot_product_attention(query_bthd, held.key_bsgd, held.value_bsge, options);
  }
  const Tensor y_btc = output_(reshape(heads_bthe, {query.size(0), query.size(1), parts_[kValue]}));
  return output_dropout_ ? (*output_dropout_)(y_btc) : y_btc;
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
