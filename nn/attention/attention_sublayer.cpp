#include <tapeformer/nn/attention/attention_sublayer.h>

namespace tapeformer {

AttentionSublayer::AttentionSublayer(std::unique_ptr<Attention> attention,
                                     const AttentionSublayerConfig& config, Generator& random)
    : attention_(std::move(attention)),
      norm_({config.width, config.epsilon, true}),
      dropout_({config.dropout}, random) {}

Tensor AttentionSublayer::operator()(const Tensor& x, const Tensor& memory,
                                     const AttentionContext& context) const {
  const Tensor attended_btc = (*attention_)(x, memory, context);
  return norm_(x, attended_btc, {dropout_.active_probability(), dropout_.next_key()}).y;
}

void AttentionSublayer::visit(ParameterVisitor& visitor) {
  visitor.child("attention", *attention_);
  visitor.child("norm", norm_);
  visitor.child("dropout", dropout_);
}

}  // namespace tapeformer
