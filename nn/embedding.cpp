#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/nn/embedding.h>

namespace tapeformer {

Embedding::Embedding(const EmbeddingConfig& config, Generator& random)
    : weight_(Tensor::empty({config.vocabulary, config.width})) {
  random.fill_normal(weight_, 0, config.standard_deviation);
}

Tensor Embedding::operator()(const Tensor& ids) const { return embedding(weight_, ids); }

void Embedding::visit(ParameterVisitor& visitor) { visitor.parameter("weight", weight_); }

}  // namespace tapeformer
