#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/initialization.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// The projections that are made before dropout_: all but the joint one of key and value.
std::vector<Linear> made_projections(const AttentionConfig& config, const PooledVector<Index>& rows,
                                     Generator& random) {
  std::vector<Linear> inputs;
  const auto add = [&](Index width, Index outputs) {
    inputs.emplace_back(LinearConfig{width, outputs, config.bias, {}}, random);
  };
  add(config.width, config.packed ? rows[0] + rows[1] + rows[2] : rows[0]);
  if (config.packed || config.groups > 0) return inputs;
  add(config.memory_width, rows[1]);
  add(config.value_memory_width, rows[2]);
  return inputs;
}

void clear_bias(Linear& layer) {
  if (layer.bias().defined()) layer.bias().set_value(Tensor::zeros(layer.bias().value().shape()));
}

void check_packed(const AttentionConfig& config) {
  if (!config.packed || (config.memory_width == config.width && config.value_memory_width == config.width)) {
    return;
  }
  throw Error("[attention] a packed projection needs inputs of one width; got attention=" + config.kind +
              ", width=" + std::to_string(config.width) +
              ", memory_width=" + std::to_string(config.memory_width) +
              ", value_memory_width=" + std::to_string(config.value_memory_width) +
              (config.groups > 0 ? "; try cross=true" : "; try packed=false"));
}

}  // namespace

void MultiHeadAttention::complete_multi_head(AttentionConfig& config) {
  config.packed = config.packed && !config.cross;
  check_packed(config);
}

void MultiHeadAttention::complete_grouped_query(AttentionConfig& config) {
  const Index H = config.heads;
  for (Index divisor = 2; config.groups == 0 && divisor <= H / divisor; ++divisor) {
    if (H % divisor == 0) config.groups = H / divisor;
  }
  config.groups = or_else(config.groups, 1);
  config.packed = !config.cross;
  check_packed(config);
}

void MultiHeadAttention::complete_multi_query(AttentionConfig& config) {
  config.groups = 1;
  complete_grouped_query(config);
}

MultiHeadAttention::MultiHeadAttention(const AttentionConfig& config, Generator& random)
    : config_(config.resolved()),
      heads_{config_.heads, config_.key_heads(), config_.key_width, config_.value_width},
      part_widths_{heads_.heads * heads_.key_width, heads_.groups * heads_.key_width,
                   heads_.groups * heads_.value_width},
      projections_(made_projections(config_, part_widths_, random)),
      output_({heads_.heads * heads_.value_width, config_.output_width, *config_.output_bias, {}}, random),
      dropout_({config_.dropout}, random) {
  if (config_.output_dropout > 0) output_dropout_.emplace(DropoutConfig{config_.output_dropout}, random);
  // Made last on purpose: drawn earlier, it would shift dropout_'s random stream, and change seeded runs.
  if (!config_.packed && config_.groups > 0) {
    projections_.emplace_back(
        LinearConfig{config_.memory_width, part_widths_[kKey] + part_widths_[kValue], config_.bias, {}},
        random);
  }
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const auto first = part_widths_.begin() + static_cast<std::ptrdiff_t>(i);
    const auto last = i + 1 == projections_.size() ? part_widths_.end() : first + 1;
    xavier_uniform_parts(projections_[i].weight(), {first, last}, random);
    clear_bias(projections_[i]);
  }
  xavier_uniform(output_.weight(), random);
  clear_bias(output_);
  if (config_.qk_norm) {
    query_gain_ = Parameter(Tensor::full({heads_.key_width}, 1));
    key_gain_ = Parameter(Tensor::full({heads_.key_width}, 1));
  }
  if (config_.value_mixing) value_mixing_ = Parameter(Tensor::full({2}, 0.5));
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
  const Tensor key_bsc = is_same_tensor(query, key) ? query_btc : batch_first(key);
  const Tensor value_bsc = is_same_tensor(key, value) ? key_bsc : batch_first(value);
  return permute(attend(query_btc, key_bsc, value_bsc, context), swapped);
}

Tensor MultiHeadAttention::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const AttentionContext& context) const {
  const bool is_self = !config_.cross && is_same_tensor(query, key) && is_same_tensor(key, value);
  if (config_.rotary && !is_self) {
    throw Error("[multi_head] rotary positions are for self-attention; got a memory that is not the query");
  }
  if (config_.value_mixing != context.values.defined()) {
    throw Error(std::string("[multi_head] ") + (config_.value_mixing
                                                    ? "value_mixing needs values in the context"
                                                    : "values in the context need value_mixing"));
  }
  const Tensor heads_bthe = is_self && config_.packed ? attend_packed(query, context)
                                                      : attend_apart(query, key, value, is_self, context);
  const Tensor y_bto = output_(merge_heads(heads_bthe));
  return output_dropout_ ? (*output_dropout_)(y_bto) : y_bto;
}

/// Self-attention with one matrix for queries, keys and values: one product projects to all heads. Without a
/// cache, packed_attention() reads them from its result without copies.
Tensor MultiHeadAttention::attend_packed(const Tensor& x, const AttentionContext& context) const {
  const Index H = heads_.heads, G = heads_.groups;
  AttentionOptions options = attention_options(context, dropout_);
  Tensor packed_btn = projections_[0](x);
  if (config_.qk_norm) packed_btn = packed_head_norms(packed_btn, H, G, query_gain_, key_gain_);
  if (config_.value_mixing) packed_btn = mix(packed_btn, context.values, value_mixing_);
  if (config_.rotary) {
    packed_btn = packed_rotary(std::move(packed_btn), H + G, heads_.key_width, angles(x, context));
  }
  if (context.cache == nullptr) return packed_attention(packed_btn, heads_, options);
  const TensorList parts = split(packed_btn, -1, part_widths_);
  const KeyValueHeads held = cached_heads(context.cache, true, heads_, options, [&] {
    return KeyValueHeads{split_heads(parts[kKey], G), split_heads(parts[kValue], G)};
  });
  return scaled_dot_product_attention(split_heads(parts[kQuery], H), held.key_bsgd, held.value_bsge, options);
}

/// The other cases: cross-attention, keys and values of different inputs, or matrices that are not packed.
Tensor MultiHeadAttention::attend_apart(const Tensor& query, const Tensor& key, const Tensor& value,
                                        bool is_self, const AttentionContext& context) const {
  AttentionOptions options = attention_options(context, dropout_);
  const RotaryAngles turns = angles(query, context);
  const auto turned = [&](const Parameter& gain, const Tensor& x) {
    const Tensor x_bthd = gain.defined() ? rms_norm(x, gain) : x;
    return config_.rotary ? rotary(x_bthd, turns) : x_bthd;
  };
  const Tensor query_bthd = turned(query_gain_, split_heads(project(kQuery, query), heads_.heads));
  const KeyValueHeads held = cached_heads(context.cache, is_self, heads_, options, [&] {
    const KeyValueHeads fresh = key_value_heads(key, value);
    const Tensor value_bsge =
        config_.value_mixing
            ? mix(fresh.value_bsge, split_heads(context.values, heads_.groups), value_mixing_)
            : fresh.value_bsge;
    return KeyValueHeads{turned(key_gain_, fresh.key_bsgd), value_bsge};
  });
  return scaled_dot_product_attention(query_bthd, held.key_bsgd, held.value_bsge, options);
}

KeyValueHeads MultiHeadAttention::key_value_heads(const Tensor& key, const Tensor& value) const {
  const Index G = heads_.groups;
  if (projections_.size() == 2 && is_same_tensor(key, value)) {
    const TensorList parts = split(projections_[1](key), -1, {part_widths_[kKey], part_widths_[kValue]});
    return {split_heads(parts[0], G), split_heads(parts[1], G)};
  }
  return {split_heads(project(kKey, key), G), split_heads(project(kValue, value), G)};
}

/// Projects `x` to one part. If its matrix holds other parts too, only this part's rows are used.
Tensor MultiHeadAttention::project(Part part, const Tensor& x) const {
  const std::size_t shared = std::min<std::size_t>(part, projections_.size() - 1);
  const Linear& input = projections_[shared];
  if (input.weight().value().size(0) == part_widths_[part]) return input(x);
  Index from = 0;
  for (std::size_t before = shared; before < part; ++before) from += part_widths_[before];
  const auto rows = [&](const Parameter& all) { return slice(all, 0, from, part_widths_[part]); };
  return linear(x, rows(input.weight()), config_.bias ? rows(input.bias()) : Tensor());
}

RotaryAngles MultiHeadAttention::angles(const Tensor& query, const AttentionContext& context) const {
  if (!config_.rotary) return {};
  return query_angles(context, query, config_.rotations, heads_.key_width);
}

void MultiHeadAttention::visit(ParameterVisitor& visitor) {
  static const std::vector<std::vector<const char*>> names = {
      {"query_key_value"}, {"query", "key_value"}, {"query", "key", "value"}};
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    const std::string name = names[projections_.size() - 1][i];
    visitor.child(name, projections_[i]);
    if (i + 1 == projections_.size() && i < kValue)  // the last one holds what has no matrix of its own
      visitor.row_parts(name + ".weight",
                        {part_widths_.begin() + static_cast<std::ptrdiff_t>(i), part_widths_.end()});
  }
  visitor.parameter("query_norm.weight", query_gain_);
  visitor.parameter("key_norm.weight", key_gain_);
  visitor.parameter("value_mixing", value_mixing_);
  visitor.child("output", output_);
  visitor.child("dropout", dropout_);
  if (output_dropout_) visitor.child("output_dropout", *output_dropout_);
}

AttentionCost MultiHeadAttention::cost(const AttentionConfig& config, const AttentionCall& call) {
  CostSum sum(call);
  const double C = config.width, H = config.heads, G = config.key_heads(), D = config.key_width,
               E = config.value_width, N = sum.N, M = sum.M;
  sum.projection(N, C, H * D, config.bias);
  sum.projection(M, config.memory_width, G * D, config.bias);
  sum.projection(M, config.value_memory_width, G * E, config.bias);
  sum.projection(N, H * E, config.output_width, *config.output_bias);
  sum.attention(H, D, E);
  sum.keeps(N * (C + H * D + H * E) + M * G * (D + E));
  if (call.keys > 0) sum.keeps(M * config.memory_width);
  if (config.rotary) sum.keeps(call.queries * D);
  if (config.qk_norm) {
    sum.parameters(2 * D);
    sum.keeps((N * H + M * G) * (D + 1) + (config.packed ? N * G * E : 0));
  }
  if (config.value_mixing) {
    sum.parameters(2);
    sum.keeps((config.packed ? N * (H * D + G * D) : 0) + 2 * M * G * E);
  }
  sum.caches(G * (D + E));
  return sum.total();
}

}  // namespace tapeformer
