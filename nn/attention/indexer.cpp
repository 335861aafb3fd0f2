#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/nn/attention/indexer.h>

namespace tapeformer {

Indexer::Indexer(const AttentionConfig& config, Generator& random)
    : heads_(config.index_heads),
      layout_(config.index_rotary_layout),
      weight_(config.index_loss),
      query_(without_bias(or_else(config.query_latent_width, config.width),
                          config.index_heads * config.index_width),
             random),
      key_(without_bias(config.width, config.index_width), random),
      weights_(without_bias(config.width, config.index_heads), random),
      key_norm_({config.index_width, 1e-6}) {
  if (weight_ > 0) return;
  for (Parameter& parameter : parameters()) parameter.set_trainable(false);
}

Tensor Indexer::keys(const Tensor& x, const RotaryAngles& angles) const {
  return rotary(split_heads(key_norm_(key_(x.detach())), 1), own_layout(angles));
}

IndexHeads Indexer::heads(const Tensor& x, const Tensor& latents, const Tensor& keys,
                          const RotaryAngles& angles) const {
  return {rotary(split_heads(query_(latents.detach()), heads_), own_layout(angles)),
          reshape(keys, {keys.size(0), keys.size(1), keys.size(3)}), weights_(x.detach())};
}

void Indexer::add_loss(const IndexHeads& index, const Tensor& chosen, const Tensor& shares,
                       LayerRecord& record) const {
  constexpr double kSmallest = 1e-30;  // whose logarithm a share of zero multiplies
  const Tensor log_shares = log(shares + kSmallest), scores = log_softmax(index_scores(index, chosen));
  const auto tokens = static_cast<double>(chosen.size(0) * chosen.size(1));
  const Tensor loss = sum(shares * (log_shares - scores)) * (weight_ / tokens);
  record.index_losses = record.index_losses.defined() ? record.index_losses + loss : loss;
  ++record.indexers;
}

void Indexer::visit(ParameterVisitor& visitor) {
  visitor.child("query", query_);
  visitor.child("key", key_);
  visitor.child("key_norm", key_norm_);
  visitor.child("weights", weights_);
  visitor.training_mode(training_);
}

void require_no_losses(const char* model, const AttentionConfig& config) {
  if (config.has_index_loss())
    throw Error(
        format("[{}] activation checkpointing needs indexers without a loss; got index_top_k={}, "
               "index_loss={}; try index_loss=0",
               model, config.index_top_k, value_text(config.index_loss)));
}

}  // namespace tapeformer
