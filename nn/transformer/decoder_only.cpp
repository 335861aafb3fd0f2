#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/profile_part.h>
#include <tapeformer/nn/attention/indexer.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/initialization.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/load_model.h>

#include <cmath>

namespace tapeformer {
namespace {

constexpr double kDeviation = 0.02;

/// Sinusoids are of order one, so embeddings added to them must be too: a scale of 0 means sqrt(C).
TokenInputConfig input_of(const DecoderOnlyConfig& config) {
  const double scale = is_sinusoidal(config.positions) ? 0 : config.embedding_scale;
  TokenInputConfig input{config.vocabulary, config.width,   config.embedding_dropout,
                         config.positions,  config.context, scale};
  if (config.embedding_norm) input.norm = config.norm_config();
  input.token_types = config.token_types;
  return input;
}

std::vector<DecoderOnlyLayer> stack(const DecoderOnlyConfig& config, Generator& random) {
  std::vector<DecoderOnlyLayer> layers;
  for (Index i = 0; i < config.layers; ++i) layers.emplace_back(config, random, i);
  return layers;
}

/// Overwrites what the layers drew: see "Initial" of DecoderOnly.
void initialise(Module& model, const DecoderOnlyConfig& config, Generator& random) {
  const bool keeps_embedding = is_sinusoidal(config.positions);  // drawn by TokenInput
  const double residual =
      config.zero_init ? 0 : kDeviation / std::sqrt(2 * static_cast<double>(config.layers));
  for (auto& [name, parameter] : model.named_parameters()) {
    const Tensor& value = parameter.value();
    if (value.rank() >= 2) {
      if (!keeps_embedding || name != "embedding.weight")
        random.fill_normal(value, 0, writes_residual(name) ? residual : kDeviation);
    } else if (ends_with(name, "bias")) {
      value.copy_from(Tensor::zeros(value.shape()));
    }
  }
}

}  // namespace

DecoderOnly::DecoderOnly(const DecoderOnlyConfig& config, Generator& random)
    : config_((config.check(), config)),
      input_(input_of(config), random),
      layers_(stack(config, random)),
      head_({config.width, config.vocabulary, config.head_bias, config.logit_softcap}, random) {
  if (config.sublayer_norms != SublayerNorms::sum) norm_.emplace(config.norm_config());
  if (config.head_transform) {
    const LinearConfig square{config.width, config.width, config.feed_forward_bias, config.activation};
    head_transform_.emplace(square, random);
    head_norm_.emplace(config.norm_config());
  }
  if (config.tie_head) head_.weight() = input_.embedding().weight();
  parameters();  // gives every parameter its path, for error messages
  initialise(*this, config, random);
  add_adapters(*this, config.adapter, random);
}

Tensor DecoderOnly::through_layers(const Tensor& embedded_btc, const AttentionContext& sequences,
                                   LayerCaches* caches, std::vector<Tensor>* weights,
                                   LayerRecord* record) const {
  DecoderOnlyContext context(sequences);
  context.record = record;
  context.causal = !config_.bidirectional;
  KeyValueHeads new_kv;
  // The rotary angles are computed once for all layers of one kind and base; their positions continue from
  // the cached tokens.
  RotaryAngles angles[2][2];
  const auto angles_of = [&](std::size_t i) -> RotaryAngles& {
    const auto layer = static_cast<Index>(i);
    return angles[config_.has_full_attention(layer)][config_.has_window_base(layer)];
  };
  if (caches != nullptr) context.cache = &caches->layer(0);
  for (std::size_t i = 0; i < layers_.size(); ++i)
    if (!angles_of(i).table.defined()) angles_of(i) = layers_[i].angles(embedded_btc, context);
  ResidualStream stream(embedded_btc);
  if (weights != nullptr) weights->assign(layers_.size(), {});
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto number = static_cast<Index>(i);
    const ProfilePart part("layers", number);
    if (caches != nullptr) context.cache = &caches->layer(i), context.convolutions = caches->convolutions(i);
    context.angles = angles_of(i);
    const bool has_weights =
        weights != nullptr && !(attention_kind(config_.attention_config(number).kind).can & kHasState);
    context.weights = has_weights ? &(*weights)[i] : nullptr;
    const bool has_keys = config_.has_keys(number), gives_values = config_.value_residual && i == 0,
               gives_keys = has_keys && i + 1 < layers_.size() && !config_.has_keys(number + 1);
    context.new_kv = gives_values || gives_keys ? &new_kv : nullptr;
    DecoderOnlyContext own = context;
    if (has_keys) own.shared = {};
    // Values that other layers read, and records, must outlive the layer's body.
    run_layer(
        stream, recomputes_layers_ && context.new_kv == nullptr && record == nullptr,
        [&layer = layers_[i], own](ResidualStream& x_btc) { layer(x_btc, own); }, own.first_values,
        own.shared.key_bsgd, own.shared.value_bsge);
    if (gives_values) context.first_values = new_kv.value_bsge;
    if (gives_keys) context.shared = new_kv;
  }
  Tensor states_btc = norm_ ? stream.normed(*norm_) : stream.sum();
  if (head_transform_) states_btc = (*head_norm_)((*head_transform_)(states_btc));
  return config_.head_scale == 1 ? states_btc : states_btc * config_.head_scale;
}

Tensor DecoderOnly::states(const Tensor& ids, const Tensor& prefix_lengths, const PackedDocuments& documents,
                           LayerRecord* record) const {
  AttentionContext sequences;
  sequences.prefix_lengths = prefix_lengths;
  if (!documents.starts.defined()) return through_layers(input_(ids), sequences, nullptr, nullptr, record);
  if (config_.short_convolution > 0)
    throw Error(format(
        "[decoder_only] short convolutions reach over the start of a document; got short_convolution={}; try "
        "rows of one document each",
        config_.short_convolution));
  sequences.query_starts = documents.starts, sequences.positions = documents.positions;
  return through_layers(input_(ids, documents.positions), sequences, nullptr, nullptr, record);
}

Tensor DecoderOnly::states(const Tensor& ids, LayerCaches& caches, const Tensor& prefix_lengths) const {
  const NoGradGuard pause;
  AttentionContext sequences;
  sequences.prefix_lengths = prefix_lengths;
  const Tensor& at = caches.positions();
  return through_layers(at.defined() ? input_(ids, at) : input_(ids, caches.length()), sequences, &caches);
}

std::vector<Tensor> DecoderOnly::attention_weights(const Tensor& ids) const {
  const NoGradGuard pause;
  std::vector<Tensor> weights;
  through_layers(input_(ids), {}, nullptr, &weights);
  return weights;
}

LayerCaches DecoderOnly::start(const CacheConfig& config) const {
  config_.require_causal();
  std::vector<std::unique_ptr<KvCache>> caches;
  const auto sharing = static_cast<std::size_t>(config_.kv_sharing);
  for (std::size_t i = 0; i < layers_.size(); i += sharing)
    caches.push_back(make_cache(config, layers_[i].cache_widths()));
  return LayerCaches(std::move(caches), config_.short_convolution > 0 ? layers_.size() : 0, sharing);
}

Tensor DecoderOnly::loss(const Tensor& ids, const Tensor& targets, const Tensor& prefix_lengths,
                         const HeadLossConfig& head, const PackedDocuments& documents) const {
  LayerRecord record;
  const Tensor states_btc =
      states(ids, prefix_lengths, documents, config_.has_layer_losses() ? &record : nullptr);
  const Tensor loss = head_loss(head_, states_btc, targets, {}, head);
  return with_layer_losses(loss, record);
}

void DecoderOnly::visit(ParameterVisitor& visitor) {
  input_.visit(visitor);  // adds no level to the parameters' names
  for (std::size_t i = 0; i < layers_.size(); ++i) visitor.child("layers." + std::to_string(i), layers_[i]);
  if (norm_) visitor.child("norm", *norm_);
  if (head_transform_) visitor.child("head_transform", *head_transform_);
  if (head_norm_) visitor.child("head_norm", *head_norm_);
  visitor.child("head", head_);
}

void DecoderOnly::recompute_layers(bool recompute) {
  if (recompute) require_no_losses("decoder_only", config_.experts);
  if (recompute) require_no_losses("decoder_only", config_.attention);
  recomputes_layers_ = recompute;
}

DecoderOnly DecoderOnly::load(const std::string& folder) { return load_model<DecoderOnly>(folder); }

}  // namespace tapeformer
