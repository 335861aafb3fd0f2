#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/attention/latent.h>
#include <tapeformer/nn/initialization.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

/// A weight [H N, M] as one matrix per head, [H, N, M].
Tensor split_weight_heads(const Linear& layer, Index heads) {
  const Tensor weight = layer.whole_weight();
  return reshape(weight, {heads, weight.size(0) / heads, weight.size(1)});
}

}  // namespace

void LatentAttention::complete(AttentionConfig& config) {
  if (config.rotary_width % 2 != 0)
    throw Error(format("[attention] rotary_width must be even; got attention={}, rotary_width={}",
                       config.kind, config.rotary_width));
  if (!config.cross && config.memory_width != config.width)
    throw Error(
        format("[attention] rotary keys are of the queries' tokens; got attention={}, width={}, "
               "memory_width={}; try cross=true",
               config.kind, config.width, config.memory_width));
  config.packed = config.rotary = false;  // the rotary part has its own keys
  config.latent_width = or_else(config.latent_width, std::max<Index>(config.width / 2, 1));
  config.rotary_width =
      config.cross ? 0 : or_else(config.rotary_width, std::max<Index>(config.key_width / 4 * 2, 2));
  if (config.rotary_width > 0) Rotary::check(config, config.rotary_width);
  if (config.cross) config.index_top_k = 0;
  if (config.index_top_k == 0) return;
  config.index_heads = or_else(config.index_heads, std::max<Index>(config.heads / 4, 1));
  config.index_width = or_else(config.index_width, std::max(config.key_width, config.rotary_width));
  const auto got = [&](const std::string& value) {
    return format("; got attention={}, index_top_k={}, {}; try ", config.kind, config.index_top_k, value);
  };
  if (config.index_width < config.rotary_width)
    throw Error("[attention] an indexer rotates as many components as attention" +
                got(format("index_width={}, rotary_width={}", config.index_width, config.rotary_width)) +
                format("index_width={}", config.rotary_width));
  if (!config.shared_key_rotation)
    throw Error("[attention] an indexer rotates its keys" + got("shared_key_rotation=false") +
                "shared_key_rotation=true");
  if (config.dropout > 0)
    throw Error("[attention] index_top_k excludes dropout of weights" +
                got("dropout=" + value_text(config.dropout)) + "attention_dropout=0");
}

std::vector<AttentionForm> LatentAttention::forms() {
  return {{"naive", [](AttentionConfig& config) { config.form = LatentForm::naive; }},
          {"absorbed", [](AttentionConfig& config) { config.form = LatentForm::absorbed; }}};
}

LatentAttention::LatentAttention(const AttentionConfig& config, Generator& random)
    : config_(config.resolved()),
      query_up_(
          without_bias(or_else(config_.query_latent_width, config_.width), config_.heads * config_.key_width),
          random),
      key_value_down_(without_bias(config_.memory_width, config_.latent_width), random),
      key_up_(without_bias(config_.latent_width, config_.heads * config_.key_width), random),
      value_up_(without_bias(config_.latent_width, config_.heads * config_.value_width), random),
      output_(without_bias(config_.heads * config_.value_width, config_.output_width), random),
      dropout_({config_.dropout}, random) {
  const Index query_inputs = or_else(config_.query_latent_width, config_.width);
  if (config_.query_latent_width > 0) query_down_.emplace(without_bias(config_.width, query_inputs), random);
  if (config_.rotary_width > 0) {
    query_rotary_.emplace(without_bias(query_inputs, config_.heads * config_.rotary_width), random);
    key_rotary_.emplace(without_bias(config_.width, config_.rotary_width), random);
    if (config_.shared_key_rotation) rotary_.emplace(config_.rotations, config_.rotary_width);
  }
  if (config_.norm) key_value_norm_.emplace(RmsNormConfig{config_.latent_width});
  if (config_.norm && query_down_) query_norm_.emplace(RmsNormConfig{query_inputs});
  const auto there = [](std::optional<Linear>& layer) { return layer ? &*layer : nullptr; };
  for (Linear* layer : {there(query_down_), &query_up_, there(query_rotary_), &key_value_down_, &key_up_,
                        &value_up_, there(key_rotary_), &output_}) {
    if (layer != nullptr) xavier_uniform(layer->weight(), random);
  }
  if (config_.index_top_k > 0) indexer_.emplace(config_, random);
}

/// The heads of x, rotated or as they are.
Tensor LatentAttention::turned(const Tensor& x, Index heads, const RotaryAngles& angles) const {
  return rotary_ ? rotary(split_heads(x, heads), angles) : split_heads(x, heads);
}

/// The content of the cache, [B, S, 1, d_c + d_R]: the latent and the shared rotary key of every token.
Tensor LatentAttention::latents(const Tensor& memory, const RotaryAngles& angles) const {
  const Tensor down_bsc = key_value_down_(memory);
  const Tensor latent_bs1c = split_heads(key_value_norm_ ? (*key_value_norm_)(down_bsc) : down_bsc, 1);
  if (!key_rotary_) return latent_bs1c;
  return concat({latent_bs1c, turned((*key_rotary_)(memory), 1, angles)}, 3);
}

Tensor LatentAttention::operator()(const Tensor& query, const Tensor& memory,
                                   const AttentionContext& context) const {
  check_inputs("latent", query, memory, context.cache);
  const bool is_self = is_same_tensor(query, memory);
  if (key_rotary_) require_self_attention("latent", "rotary positions are", is_self);
  const bool is_decoding = context.cache != nullptr && context.cache->length() > 0;
  const bool absorbs =
      config_.form == LatentForm::absorbed || (config_.form == LatentForm::automatic && is_decoding);
  AttentionOptions options = attention_options(context, dropout_);
  options.scale = config_.score_scale > 0
                      ? config_.score_scale
                      : 1 / std::sqrt(static_cast<double>(config_.key_width + config_.rotary_width));

  Tensor input_bti = query_down_ ? (*query_down_)(query) : query;
  if (query_norm_) input_bti = (*query_norm_)(input_bti);
  const RotaryAngles turns = angles(query, context);
  const Tensor rotary_bthr =
      key_rotary_ ? turned((*query_rotary_)(input_bti), config_.heads, turns) : Tensor();
  const bool learns = indexer_ && indexer_->learns(context.record);
  const auto if_learning = [&](const auto& compute) {
    if (learns) return compute();
    const NoGradGuard choice_has_no_gradient;
    return compute();
  };
  const PackedHeads one_latent{config_.heads, 1, config_.latent_width + config_.rotary_width,
                               config_.index_width};
  const auto [latents_bs1n, index_keys_bs1d] = cached_heads(context.cache, is_self, one_latent, options, [&] {
    KeyValueHeads own{latents(memory, turns), {}};
    if (indexer_) own.value_bsge = if_learning([&] { return indexer_->keys(memory, turns); });
    return own;
  });
  const Index S = latents_bs1n.size(1);
  if (!learns && (!indexer_ || S <= config_.index_top_k)) {
    if (!absorbs) return naive(input_bti, rotary_bthr, latents_bs1n, options);
    return absorbed(input_bti, rotary_bthr, [&, &latents = latents_bs1n](const Tensor& query_bthn) {
      const Tensor summed_bthn = scaled_dot_product_attention(query_bthn, latents, latents, options);
      return key_rotary_ ? slice(summed_bthn, 3, 0, config_.latent_width) : summed_bthn;
    });
  }
  const IndexHeads index =
      if_learning([&, &keys = index_keys_bs1d] { return indexer_->heads(query, input_bti, keys, turns); });
  const Tensor chosen_btk = choose_keys(index, config_.index_top_k, options);
  Tensor shares_btk;
  SparseOptions sparse{config_.latent_width, options.scale, learns ? &shares_btk : nullptr, options.weights};
  const Tensor latents_bsn = reshape(latents_bs1n, {latents_bs1n.size(0), S, latents_bs1n.size(3)});
  const Tensor y = absorbed(input_bti, rotary_bthr, [&](const Tensor& query_bthn) {
    return sparse_attention(query_bthn, latents_bsn, chosen_btk, sparse);
  });
  if (shares_btk.defined()) indexer_->add_loss(index, chosen_btk, shares_btk, *context.record);
  return y;
}

Tensor LatentAttention::naive(const Tensor& input, const Tensor& rotary, const Tensor& latents,
                              const AttentionOptions& options) const {
  const Index S = latents.size(1), N = latents.size(3);
  const Tensor latent_bsc =
      reshape(slice(latents, 3, 0, config_.latent_width), {latents.size(0), S, config_.latent_width});
  Tensor query_bthd = split_heads(query_up_(input), config_.heads),
         key_bshd = split_heads(key_up_(latent_bsc), config_.heads);
  if (key_rotary_) {
    const Tensor shared_bs1r = slice(latents, 3, config_.latent_width, N - config_.latent_width);
    const Shape repeated{latents.size(0), S, config_.heads, N - config_.latent_width};
    query_bthd = concat({query_bthd, rotary}, 3);
    key_bshd = concat({key_bshd, broadcast_to(shared_bs1r, repeated)}, 3);
  }
  const Tensor value_bshe = split_heads(value_up_(latent_bsc), config_.heads);
  const Tensor heads_bthe = scaled_dot_product_attention(query_bthd, key_bshd, value_bshe, options);
  return output_(merge_heads(heads_bthe));
}

/// The latents are keys and values at once. Attention to all keys computes the weighted sum of the rotary
/// keys and drops it, which costs less than copying the latents out of the cache for every token.
Tensor LatentAttention::absorbed(const Tensor& input, const Tensor& rotary,
                                 const AbsorbedAttention& attend) const {
  const Index H = config_.heads;
  Tensor query_bthc =
      matmul(by_head(split_heads(query_up_(input), H)), split_weight_heads(key_up_, H), 1, true);
  if (key_rotary_) query_bthc = concat({query_bthc, rotary}, 3);
  return output_(merge_heads(
      matmul(by_head(attend(query_bthc)), transposed(split_weight_heads(value_up_, H)), 1, true)));
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
  if (indexer_) visitor.child("indexer", *indexer_);
  visitor.child("dropout", dropout_);
}

void LatentAttention::add_cost(const AttentionConfig& config, CostSum& sum) {
  const double C = config.width, H = config.heads, D = config.key_width, E = config.value_width,
               memory = config.memory_width, L = config.latent_width, R = config.rotary_width,
               I = or_else(config.query_latent_width, config.width), N = sum.N, M = sum.M;
  const auto latents = [&](double rows, double inputs, double width) {
    sum.projection(rows, inputs, width, false);
    sum.keeps(rows * width);
    if (!config.norm) return;
    sum.parameters(width);
    sum.keeps(rows * width), sum.keeps_wide(rows);
  };
  if (config.query_latent_width > 0) latents(N, C, I);
  latents(M, memory, L);
  sum.projection(N, I, H * (D + R), false);
  sum.projection(M, C, R, false);
  sum.projection(N, H * E, config.output_width, false);
  sum.parameters(L * H * (D + E));
  sum.keeps(N * C + (sum.call.keys > 0 ? M * memory : 0));
  if (R > 0 && config.shared_key_rotation) sum.keeps_angles(config, config.rotary_width);

  const bool decodes = config.form == LatentForm::automatic && sum.call.cached > 0;
  if (config.index_top_k > 0 && sum.choose_keys(config)) {
    sum.product(N, H * L * (D + E));
    sum.attend_to_chosen(H, L + R, L);
    sum.keeps(M * R + N * H * (2 * L + R) + N * H * (D + E));
  } else if (config.form == LatentForm::absorbed || decodes) {
    sum.product(N, H * L * (D + E));
    sum.attention(H, L + R, L + R);
    sum.keeps(M * R + 2 * N * H * (L + R) + N * H * (D + E) + (R > 0 ? N * H * L : 0));
  } else {
    sum.product(sum.held, H * L * (D + E));
    sum.attention(H, D + R, E);
    sum.keeps((N + M) * H * (D + R + E));
  }
  sum.caches(L + R);
}

}  // namespace tapeformer
