#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/profile_part.h>
#include <tapeformer/nn/transformer/token_input.h>

#include <cmath>

namespace tapeformer {

TokenInput::TokenInput(const TokenInputConfig& config, Generator& random)
    : scale_(config.scale > 0 ? config.scale : std::sqrt(static_cast<double>(config.width))),
      embedding_({config.vocabulary, config.width, 1 / scale_}, random),
      positions_({config.positions, config.width, config.max_length}, random),
      dropout_({config.dropout}, random) {
  if (config.norm) norm_.emplace(*config.norm);
}

Tensor TokenInput::embedded(const Tensor& ids) const {
  const Tensor tokens_btc = embedding_(ids);
  return scale_ == 1 ? tokens_btc : tokens_btc * scale_;
}

Tensor TokenInput::operator()(const Tensor& ids, Index first) const {
  const ProfilePart part("embedding");
  return finished(positions_(embedded(ids), first));
}

Tensor TokenInput::operator()(const Tensor& ids, const Tensor& at) const {
  const ProfilePart part("embedding");
  return finished(positions_(embedded(ids), at));
}

void TokenInput::visit(ParameterVisitor& visitor) {
  visitor.child("embedding", embedding_);
  visitor.child("positions", positions_);
  visitor.child("dropout", dropout_);
  if (norm_) visitor.child("embedding_norm", *norm_);
}

}  // namespace tapeformer
