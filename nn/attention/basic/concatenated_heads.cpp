#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/basic/concatenated_heads.h>

namespace tapeformer {

ConcatenatedHeads::ConcatenatedHeads(const ConcatenatedHeadsConfig& config, Generator& random) {
  SingleHeadConfig head = config.head;
  const PackedHeads heads = resolved_heads("concatenated_heads", head.width, 0,
                                           {config.heads, config.heads, head.key_width,
                                            head.value_width == 0 ? head.key_width : head.value_width});
  head.key_width = heads.key_width;
  head.value_width = heads.value_width;
  for (Index h = 0; h < config.heads; ++h) heads_.emplace_back(head, random);
  if (config.output)
    output_.emplace(LinearConfig{config.heads * head.value_width, head.width, true, {}}, random);
}

Tensor ConcatenatedHeads::operator()(const Tensor& query, const Tensor& memory,
                                     const AttentionContext& context) const {
  if (context.cache != nullptr)
    throw Error("[concatenated_heads] this layer keeps no cache; try MultiHeadAttention");
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
