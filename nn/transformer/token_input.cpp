#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
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
  if (config.token_types == 0) return;
  token_types_ = Parameter(Tensor::empty({config.token_types, config.width}));
  random.fill_normal(token_types_.value(), 0, 1 / scale_);
}

Tensor TokenInput::embedded(const Tensor& ids) const {
  const Tensor tokens_btc = embedding_(ids);
  const Tensor scaled_btc = scale_ == 1 ? tokens_btc : tokens_btc * scale_;
  return token_types_.defined() ? scaled_btc + slice(token_types_, 0, 0, 1) : scaled_btc;
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
  visitor.parameter("token_types.weight", token_types_);
}

}  // namespace tapeformer
