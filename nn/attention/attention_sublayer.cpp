#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/nn/attention/attention_sublayer.h>

namespace tapeformer {

AttentionSublayer::AttentionSublayer(std::unique_ptr<Attention> attention,
                                     const AttentionSublayerConfig& config, Generator& random)
    : attention_(std::move(attention)),
      norm_({config.width, config.epsilon, true}),
      dropout_({config.dropout}, random) {}

Tensor AttentionSublayer::operator()(const Tensor& x, const Tensor& memory,
                                     const AttentionContext& context) const {
  return norm_(x + dropout_((*attention_)(x, memory, context)));
}

void AttentionSublayer::visit(ParameterVisitor& visitor) {
  visitor.child("attention", *attention_);
  visitor.child("norm", norm_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
