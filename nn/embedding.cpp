#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/nn/embedding.h>
#include <tapeformer/nn/initialization.h>

namespace tapeformer {

Embedding::Embedding(const EmbeddingConfig& config, Generator& random)
    : weight_(Tensor::empty({config.vocabulary, config.width})) {
  normal(weight_, random, config.standard_deviation);
}

Tensor Embedding::operator()(const Tensor& ids) const { return embedding(weight_, ids); }

void Embedding::visit(ParameterVisitor& visitor) { visitor.parameter("weight", weight_); }

}  // namespace tapeformer
