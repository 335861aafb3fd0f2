#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/nn/initialization.h>

namespace tapeformer {

void MultiHeadAttention::complete(AttentionConfig& config) {
  const Index H = config.heads;
  const bool is_grouped = config.kind != "mha";
  if (config.kind == "mqa") config.groups = 1;
  for (Index divisor = 2; is_grouped && config.groups == 0 && divisor <= H / divisor; ++divisor)
    if (H % divisor == 0) config.groups = H / divisor;
  if (is_grouped) config.groups = or_else(config.groups, 1);
  config.packed = (config.packed || is_grouped) && !config.cross;
  AttentionPieces::complete(config);
  if (config.shared_keys && config.cross)
    throw Error(format(
        "[attention] a layer with shared_keys has no values of its own; got attention={}, shared_keys=true, "
        "cross=true; try cross=false",
        config.kind));
  if (config.shared_keys) config.packed = false;
  if (!config.packed || (config.memory_width == config.width && config.value_memory_width == config.width))
    return;
  throw Error(
      format("[attention] a packed projection needs inputs of one width; got attention={}, width={}, "
             "memory_width={}, value_memory_width={}; try {}",
             config.kind, config.width, config.memory_width, config.value_memory_width,
             is_grouped ? "cross=true" : "packed=false"));
}

void MultiHeadAttention::add_cost(const AttentionConfig& config, CostSum& sum) {
  const double C = config.width, H = config.heads, G = config.key_heads(), D = config.key_width,
               E = config.value_width, N = sum.N, M = sum.M;
  sum.projection(N, C, H * D, config.bias);
  if (!config.shared_keys) {
    sum.projection(M, config.memory_width, G * D, config.bias);
    sum.projection(M, config.value_memory_width, G * E, config.bias);
    sum.caches(G * (D + E));
  }
  sum.projection(N, H * E, config.output_width, *config.output_bias);
  sum.keeps(N * (C + H * D + H * E) + M * G * (D + E));
  if (sum.call.keys > 0) sum.keeps(M * config.memory_width);
  sum.packed = config.packed;
  AttentionPieces::add_cost(config, sum);
  sum.attention(H, D, E);
}

// The order of the members is the order of the random draws: changing it would change seeded runs.
MultiHeadAttention::MultiHeadAttention(const AttentionConfig& config, Generator& random)
    : config_(config.resolved()),
      projections_(config_, random),
      output_({config_.heads * config_.value_width, config_.output_width, *config_.output_bias, {}}, random),
      dropout_({config_.dropout}, random),
      pieces_(AttentionPieces::make(config_, random)) {
  if (config_.output_dropout > 0) output_dropout_.emplace(DropoutConfig{config_.output_dropout}, random);
  projections_.initialise(random);
  xavier_uniform(output_.weight(), random);
  clear_bias(output_);
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
  const bool has_shared = context.shared.key_bsgd.defined();
  if (has_shared != config_.shared_keys)
    throw Error(has_shared ? "[multi_head] shared keys and values in the context need shared_keys"
                           : "[multi_head] shared_keys needs shared keys and values in the context");
  CallHeads heads = projections_(query, key, value, context, is_self);
  for (const auto& piece : pieces_) piece->change_heads(heads);
  if (context.new_kv != nullptr) *context.new_kv = {heads.key(), heads.value()};
  Tensor y_bthe = weighted_values(heads);
  for (const auto& piece : pieces_) y_bthe = piece->change_output(y_bthe, heads);
  const Tensor y_bto = output_(merge_heads(y_bthe));
  return output_dropout_ ? (*output_dropout_)(y_bto) : y_bto;
}

/// Packed rows are read without copies, unless a cache has keys and values of its own.
Tensor MultiHeadAttention::weighted_values(CallHeads& heads) const {
  const AttentionContext& context = heads.context;
  AttentionOptions options = attention_options(context, dropout_);
  options.scale = config_.score_scale;
  const auto change_scores = [&](const Tensor& read, Index keys) {
    for (const auto& piece : pieces_) piece->change_scores(options, wide(read.dtype()), read.size(1), keys);
  };
  Tensor y_bthe;
  if (heads.packed_btn.defined() && context.cache == nullptr) {
    change_scores(heads.packed_btn, heads.packed_btn.size(1));
    y_bthe = packed_attention(heads.packed_btn, heads.sizes, options);
  } else {
    const auto new_kv = [&] { return KeyValueHeads{heads.key(), heads.value()}; };
    const bool is_cached_elsewhere = config_.shared_keys && context.cache != nullptr;
    const KeyValueHeads kv =
        config_.shared_keys
            ? (is_cached_elsewhere ? cached_kv(*context.cache, heads.sizes, options) : context.shared)
            : cached_heads(context.cache, heads.is_self, heads.sizes, options, new_kv);
    change_scores(heads.query(), kv.key_bsgd.size(1));
    y_bthe = scaled_dot_product_attention(heads.query(), kv.key_bsgd, kv.value_bsge, options);
  }
  heads.release();
  return y_bthe;
}

RotaryAngles MultiHeadAttention::angles(const Tensor& query, const AttentionContext& context) const {
  RotaryAngles angles;
  for (const auto& piece : pieces_)
    if (!angles.table.defined()) angles = piece->angles(query, context);
  return angles;
}

void MultiHeadAttention::visit(ParameterVisitor& visitor) {
  projections_.visit(visitor);  // like the pieces, adds no level to the names
  for (const auto& piece : pieces_) piece->visit(visitor);
  visitor.child("output", output_);
  visitor.child("dropout", dropout_);
  if (output_dropout_) visitor.child("output_dropout", *output_dropout_);
}

}  // namespace tapeformer
