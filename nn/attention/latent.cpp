#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape.h>
#include <tapeformer/nn/attention/latent.h>
#include <tapeformer/nn/initialization.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

LinearConfig plain(Index inputs, Index outputs) { return {inputs, outputs, false, {}}; }

/// A weight [H N, M] as one matrix a head, [H, N, M].
Tensor split_weight_heads(const Linear& layer, Index heads) {
  const Tensor& weight = layer.weight();
  return reshape(weight, {heads, weight.size(0) / heads, weight.size(1)});
}

}  // namespace

LatentConfig LatentConfig::resolved() const {
  check_sizes("latent", {{"memory_width", memory_width},
                         {"latent_width", latent_width},
                         {"query_latent_width", query_latent_width},
                         {"rotary_width", rotary_width}});
  if (rotary_width % 2 != 0) {
    throw Error("[latent] rotary_width must be even; got rotary_width=" + std::to_string(rotary_width));
  }
  const PackedHeads sizes =
      resolved_heads("latent", width, output_width, {heads, heads, key_width, value_width});
  LatentConfig full = *this;
  full.memory_width = or_else(memory_width, width);
  full.output_width = or_else(output_width, width);
  full.key_width = sizes.key_width;
  full.value_width = sizes.value_width;
  full.latent_width = or_else(latent_width, std::max<Index>(width / 2, 1));
  return full;
}

LatentAttention::LatentAttention(const LatentConfig& config, Generator& random)
    : config_(config.resolved()),
      heads_(config_.heads),
      key_width_(config_.key_width),
      value_width_(config_.value_width),
      latent_width_(config_.latent_width),
      query_up_(plain(or_else(config.query_latent_width, config.width), heads_ * key_width_), random),
      key_value_down_(plain(config_.memory_width, latent_width_), random),
      key_up_(plain(latent_width_, heads_ * key_width_), random),
      value_up_(plain(latent_width_, heads_ * value_width_), random),
      output_(plain(heads_ * value_width_, config_.output_width), random),
      dropout_({config.dropout}, random) {
  const Index query_inputs = or_else(config.query_latent_width, config.width);
  if (config.query_latent_width > 0) query_down_.emplace(plain(config.width, query_inputs), random);
  if (config.rotary_width > 0) {
    query_rotary_.emplace(plain(query_inputs, heads_ * config.rotary_width), random);
    key_rotary_.emplace(plain(config.width, config.rotary_width), random);
  }
  if (config.norm) key_value_norm_.emplace(RmsNormConfig{latent_width_});
  if (config.norm && query_down_) query_norm_.emplace(RmsNormConfig{query_inputs});
  const auto there = [](std::optional<Linear>& layer) { return layer ? &*layer : nullptr; };
  for (Linear* layer : {there(query_down_), &query_up_, there(query_rotary_), &key_value_down_, &key_up_,
                        &value_up_, there(key_rotary_), &output_}) {
    if (layer != nullptr) xavier_uniform(layer->weight(), random);
  }
}

RotaryAngles LatentAttention::angles(const Tensor& query, const AttentionContext& context) const {
  if (!key_rotary_) return {};
  return query_angles(context, query, config_.rotations, config_.rotary_width);
}

/// What the cache holds: [B, S, 1, d_c + d_R], the latent and the shared rotary key of every token.
Tensor LatentAttention::latents(const Tensor& memory, const RotaryAngles& angles) const {
  const Tensor down_bsc = key_value_down_(memory);
  const Tensor latent_bs1c = split_heads(key_value_norm_ ? (*key_value_norm_)(down_bsc) : down_bsc, 1);
  if (!key_rotary_) return latent_bs1c;
  return concat({latent_bs1c, rotary(split_heads((*key_rotary_)(memory), 1), angles)}, 3);
}

Tensor LatentAttention::operator()(const Tensor& query, const Tensor& memory,
                                   const AttentionContext& context) const {
  return attend(query, memory, context, {});
}

Tensor LatentAttention::operator()(const Tensor& query, const Tensor& memory, const AttentionContext& context,
                                   const LatentProducts& products) const {
  return attend(query, memory, context, Tape::current() == nullptr ? products : LatentProducts());
}

Tensor LatentAttention::attend(const Tensor& query, const Tensor& memory, const AttentionContext& context,
                               const LatentProducts& products) const {
  check_inputs("latent", query, memory, context.cache);
  const bool is_self = is_self_attention(query, memory);
  if (key_rotary_ && !is_self) {
    throw Error("[latent] rotary positions are for self-attention; got rotary_width=" +
                std::to_string(config_.rotary_width) +
                " and a memory that is not the query; try rotary_width=0");
  }
  const bool is_decoding = context.cache != nullptr && context.cache->length() > 0;
  const bool absorbs =
      config_.form == LatentForm::absorbed || (config_.form == LatentForm::automatic && is_decoding);
  AttentionOptions options = attention_options(context, dropout_);
  options.scale = 1 / std::sqrt(static_cast<double>(key_width_ + config_.rotary_width));

  Tensor input_bti = query_down_ ? (*query_down_)(query) : query;
  if (query_norm_) input_bti = (*query_norm_)(input_bti);
  const RotaryAngles turns = angles(query, context);
  const Tensor rotary_bthr =
      key_rotary_ ? rotary(split_heads((*query_rotary_)(input_bti), heads_), turns) : Tensor();
  const PackedHeads held{heads_, 1, latent_width_ + config_.rotary_width, 0};
  const Tensor latents_bs1n = cached_heads(context.cache, is_self, held, options, [&] {
                                return KeyValueHeads{latents(memory, turns), {}};
                              }).key_bsgd;
  return absorbs ? absorbed(input_bti, rotary_bthr, latents_bs1n, products, options)
                 : naive(input_bti, rotary_bthr, latents_bs1n, options);
}

Tensor LatentAttention::naive(const Tensor& input, const Tensor& rotary, const Tensor& latents,
                              const AttentionOptions& options) const {
  const Index S = latents.size(1), N = latents.size(3);
  const Tensor latent_bsc = reshape(slice(latents, 3, 0, latent_width_), {latents.size(0), S, latent_width_});
  Tensor query_bthd = split_heads(query_up_(input), heads_),
         key_bshd = split_heads(key_up_(latent_bsc), heads_);
  if (key_rotary_) {
    const Tensor shared_bs1r = slice(latents, 3, latent_width_, N - latent_width_);
    const Shape repeated{latents.size(0), S, heads_, N - latent_width_};
    query_bthd = concat({query_bthd, rotary}, 3);
    key_bshd = concat({key_bshd, broadcast_to(shared_bs1r, repeated)}, 3);
  }
  const Tensor value_bshe = split_heads(value_up_(latent_bsc), heads_);
  const Tensor heads_bthe = scaled_dot_product_attention(query_bthd, key_bshd, value_bshe, options);
  return output_(merge_heads(heads_bthe));
}

/// The latents are keys and values at once: what the weights sum up of the rotary keys is dropped, which
/// costs less than copying the latents out of the cache at every token.
Tensor LatentAttention::absorbed(const Tensor& input, const Tensor& rotary, const Tensor& latents,
                                 const LatentProducts& products, const AttentionOptions& options) const {
  const bool use_products = products.query.defined();
  Tensor query_bthc = use_products ? split_heads(linear(input, products.query), heads_)
                                   : matmul(by_head(split_heads(query_up_(input), heads_)),
                                            split_weight_heads(key_up_, heads_), 1, true);
  if (key_rotary_) query_bthc = concat({query_bthc, rotary}, 3);
  Tensor summed_bthc = scaled_dot_product_attention(query_bthc, latents, latents, options);
  if (key_rotary_) summed_bthc = slice(summed_bthc, 3, 0, latent_width_);
  if (use_products) return linear(merge_heads(summed_bthc), products.output);
  return output_(
      merge_heads(matmul(by_head(summed_bthc), transposed(split_weight_heads(value_up_, heads_)), 1, true)));
}

LatentProducts LatentAttention::products() const {
  const NoGradGuard pause;
  const Tensor query_hci =
      matmul(transposed(split_weight_heads(key_up_, heads_)), split_weight_heads(query_up_, heads_));
  const Tensor output_che = reshape(output_.weight(), {config_.output_width, heads_, value_width_});
  return {reshape(query_hci, {heads_ * latent_width_, query_hci.size(2)}),
          reshape(matmul(by_head(output_che), split_weight_heads(value_up_, heads_), 1, true),
                  {config_.output_width, heads_ * latent_width_})};
}

void LatentAttention::visit(ParameterVisitor& visitor) {
  if (query_down_) visitor.child("query_down", *query_down_);
  if (query_norm_) visitor.child("query_norm", *query_norm_);
  visitor.child("query_up", query_up_);
  if (query_rotary_) visitor.child("query_rotary", *query_rotary_);
  visitor.child("key_value_down", key_value_down_);
  if (key_value_norm_) visitor.child("key_value_norm", *key_value_norm_);
  visitor.child("key_up", key_up_);
  visitor.child("value_up", value_up_);
  if (key_rotary_) visitor.child("key_rotary", *key_rotary_);
  visitor.child("output", output_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
