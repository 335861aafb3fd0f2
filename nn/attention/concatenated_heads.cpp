#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/concatenated_heads.h>

namespace tapeformer {

ConcatenatedHeads::ConcatenatedHeads(const ConcatenatedHeadsConfig& config, Generator& random) {
  SingleHeadConfig head = config.head;
  if (config.heads < 1 || (head.key_width == 0 && head.width % config.heads != 0)) {
    throw Error("[concatenated_heads] width must be divisible by heads; got width=" +
                std::to_string(head.width) + ", heads=" + std::to_string(config.heads) +
                "; try a width that is a multiple of the heads, or give key_width");
  }
  if (head.key_width == 0) head.key_width = head.width / config.heads;
  if (head.value_width == 0) head.value_width = head.key_width;
  for (Index h = 0; h < config.heads; ++h) heads_.emplace_back(head, random);
  if (config.output) {
    output_.emplace(LinearConfig{config.heads * head.value_width, head.width, true, {}}, random);
  }
}

Tensor ConcatenatedHeads::operator()(const Tensor& query, const Tensor& memory,
                                     const AttentionContext& context) const {
  if (context.cache != nullptr) {
    throw Error("[concatenated_heads] this layer keeps no cache; try MultiHeadAttention");
  }
  TensorList outputs, weights(heads_.size());
  for (std::size_t h = 0; h < heads_.size(); ++h) {
    AttentionContext own = context;
    if (context.weights != nullptr) own.weights = &weights[h];
    outputs.push_back(heads_[h](query, memory, own));
  }
  if (context.weights != nullptr) *context.weights = concat(weights, 1);
  const Tensor y_bte = concat(outputs, -1);
  return output_ ? (*output_)(y_bte) : y_bte;
}

void ConcatenatedHeads::visit(ParameterVisitor& visitor) {
  visitor.children(heads_);
  if (output_) visitor.child("output", *output_);
}

}  // namespace tapeformer
