#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/profile_part.h>
#include <tapeformer/nn/attention/indexer.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/initialization.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

namespace tapeformer {
namespace {

std::vector<TransformerLayer> stack(const EncoderDecoderConfig& config, Generator& random,
                                    TransformerSide side) {
  const bool encodes = side == TransformerSide::encoder;
  TransformerLayerConfig layer = encodes ? config.layer : config.decoder_layer();
  layer.attention.add_positions(config.positions);
  if (layer.attention.weighting == AttentionWeighting::sigmoid)
    layer.attention.sigmoid_keys = config.max_length;
  std::vector<TransformerLayer> layers;
  const Index count = encodes ? config.encoder_layers : config.decoder_layers;
  for (Index i = 0; i < count; ++i) layers.emplace_back(layer, random, side);
  return layers;
}

TokenInputConfig input_of(const EncoderDecoderConfig& config, TransformerSide side) {
  const Index vocabulary =
      side == TransformerSide::encoder ? config.source_vocabulary : config.target_vocabulary;
  TokenInputConfig input{vocabulary,       config.layer.width, config.layer.dropout,
                         config.positions, config.max_length,  config.embedding_scale};
  if (config.embedding_norm) input.norm = config.layer.norm_config();
  return input;
}

/// Ties the tables of distances.
struct TableTie : ParameterVisitor {
  void on_parameter(const std::string& path, Parameter& parameter) override {
    if (!ends_with(path, "relative_bias.weight")) return;
    if (!first.defined()) first = parameter;
    parameter = first;
  }

  Parameter first;
};

}  // namespace

LayerStack::LayerStack(const EncoderDecoderConfig& config, Generator& random, TransformerSide side)
    : input_(input_of(config, side), random),
      layers_(stack(config, random, side)),
      output_scale_(side == TransformerSide::decoder ? config.head_scale : 1) {
  if (config.layer.norm_first) norm_.emplace(config.layer.norm_config());
  TableTie tie;
  if (config.shared_buckets)
    for (TransformerLayer& layer : layers_) layer.visit(tie);
}

void LayerStack::visit(ParameterVisitor& visitor) {
  input_.visit(visitor);  // adds no level to the parameters' names
  visitor.children(layers_);
  if (norm_) visitor.child("norm", *norm_);
}

Tensor LayerStack::through_layers(const Tensor& embedded, const Tensor& memory,
                                  TransformerLayerContext context, std::vector<Tensor>* cross_weights,
                                  DecoderState* state) const {
  ResidualStream stream(embedded);
  if (cross_weights != nullptr) cross_weights->assign(layers_.size(), {});
  // Weights, caches and records outlive a layer's body.
  const bool recomputes =
      recomputes_layers_ && cross_weights == nullptr && state == nullptr && context.record == nullptr;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const ProfilePart part("", static_cast<Index>(i));
    if (cross_weights != nullptr) context.cross_weights = &(*cross_weights)[i];
    if (state != nullptr) {
      context.self_cache = &state->tokens_.layer(i);
      context.cross_cache = &state->cross_.layer(i);
    }
    if (i == 0) context.angles = layers_[0].angles(embedded, context);
    run_layer(
        stream, recomputes,
        [&layer = layers_[i], memory, context](ResidualStream& x_btc) { layer(x_btc, memory, context); },
        memory);
  }
  const Tensor states_btc = norm_ ? stream.normed(*norm_) : stream.sum();
  return output_scale_ == 1 ? states_btc : states_btc * output_scale_;
}

Tensor Encoder::operator()(const Tensor& ids, const Tensor& mask, LayerRecord* record) const {
  const ProfilePart whole("encoder");
  TransformerLayerContext context{mask};
  context.record = record;
  return through_layers(input_(ids), {}, context);
}

Tensor Decoder::operator()(const Tensor& ids, const Tensor& memory, const Tensor& memory_mask,
                           std::vector<Tensor>* cross_weights, LayerRecord* record) const {
  const ProfilePart whole("decoder");
  TransformerLayerContext context{{}, memory_mask};
  context.record = record;
  return through_layers(input_(ids), memory, context, cross_weights);
}

Tensor Decoder::operator()(const Tensor& ids, DecoderState& state) const {
  const NoGradGuard pause;
  const ProfilePart whole("decoder");
  const Tensor& at = state.tokens_.positions();
  const Tensor embedded_btc = at.defined() ? input_(ids, at) : input_(ids, state.length());
  return through_layers(embedded_btc, state.memory_, {{}, state.memory_mask_}, nullptr, &state);
}

DecoderState Decoder::start(const Tensor& memory, const Tensor& memory_mask,
                            const CacheConfig& config) const {
  CacheConfig memory_config = config;
  memory_config.capacity = memory.size(1);  // no room beyond the memory
  std::vector<std::unique_ptr<KvCache>> tokens, cross;
  for (const TransformerLayer& layer : layers_) {
    tokens.push_back(make_cache(config, layer.self_cache_widths()));
    cross.push_back(make_cache(memory_config, layer.cross_cache_widths()));
  }
  return DecoderState(memory, memory_mask, LayerCaches(std::move(tokens)), LayerCaches(std::move(cross)));
}

EncoderDecoder::EncoderDecoder(const EncoderDecoderConfig& config, Generator& random)
    : config_((config.check(), config)),
      encoder_(config, random),
      decoder_(config, random),
      head_({config.layer.width, config.target_vocabulary, config.head_bias, config.logit_softcap}, random) {
  if (config.tie_embeddings) decoder_.embedding().weight() = encoder_.embedding().weight();
  if (config.tie_target_head) head_.weight() = decoder_.embedding().weight();
  for (Parameter& parameter : parameters())  // gives every parameter its path, for error messages
    if (config.zero_init && writes_residual(parameter.name()))
      parameter.value().copy_from(Tensor::zeros(parameter.value().shape()));
  add_adapters(*this, config.adapter, random);
}

Tensor EncoderDecoder::operator()(const Tensor& source, const Tensor& source_mask,
                                  const Tensor& target) const {
  return logits(decode(target, encode(source, source_mask), source_mask));
}

Tensor EncoderDecoder::loss(const Tensor& source, const Tensor& source_mask, const Tensor& target,
                            const Tensor& expected, const CrossEntropyOptions& options,
                            const HeadLossConfig& head) const {
  LayerRecord losses;
  const bool has_losses = config_.layer.experts.has_losses() || config_.layer.attention.has_index_loss();
  LayerRecord* const record = has_losses ? &losses : nullptr;
  const Tensor memory_bsc = encoder_(source, source_mask, record),
               states_btc = decoder_(target, memory_bsc, source_mask, nullptr, record);
  const Tensor loss = head_loss(head_, states_btc, expected, options, head);
  return with_layer_losses(loss, losses);
}

void EncoderDecoder::recompute_layers(bool recompute) {
  if (recompute) require_no_losses("encoder_decoder", config_.layer.experts);
  if (recompute) require_no_losses("encoder_decoder", config_.layer.attention);
  encoder_.recompute_layers(recompute);
  decoder_.recompute_layers(recompute);
}

void EncoderDecoder::visit(ParameterVisitor& visitor) {
  visitor.child("encoder", encoder_);
  visitor.child("decoder", decoder_);
  visitor.child("head", head_);
}

}  // namespace tapeformer
