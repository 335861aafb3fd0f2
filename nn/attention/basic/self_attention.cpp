#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/nn/attention/basic/self_attention.h>
#include <tapeformer/nn/initialization.h>

#include <cmath>

namespace tapeformer {

Tensor self_attention(const Tensor& x, double scale, Tensor* weights) {
  const Tensor weights_tt = softmax(matmul(x, transposed(x), scale));
  if (weights != nullptr) *weights = weights_tt;
  return matmul(weights_tt, x);
}

MatrixSelfAttention::MatrixSelfAttention(const MatrixSelfAttentionConfig& config, Generator& random) {
  const Index key_width = config.key_width > 0 ? config.key_width : config.width;
  const Index value_width = config.value_width > 0 ? config.value_width : key_width;
  scale_ = config.scale != 0 ? config.scale : 1 / std::sqrt(static_cast<double>(key_width));
  query_ = Parameter(Tensor::empty({config.width, key_width}));
  key_ = Parameter(Tensor::empty({config.width, key_width}));
  value_ = Parameter(Tensor::empty({config.width, value_width}));
  for (Parameter* matrix : {&query_, &key_, &value_}) xavier_uniform(*matrix, random);
}

Tensor MatrixSelfAttention::operator()(const Tensor& x, Tensor* weights) const {
  const Tensor query_td = matmul(x, query_);
  const Tensor key_td = matmul(x, key_);
  const Tensor value_te = matmul(x, value_);
  const Tensor weights_tt = softmax(matmul(query_td, transposed(key_td), scale_));
  if (weights != nullptr) *weights = weights_tt;
  return matmul(weights_tt, value_te);
}

void MatrixSelfAttention::visit(ParameterVisitor& visitor) {
  visitor.parameter("query", query_);
  visitor.parameter("key", key_);
  visitor.parameter("value", value_);
}

}  // namespace tapeformer
