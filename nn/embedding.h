#pragma once

#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/module.h>

namespace tapeformer {

struct EmbeddingConfig {
  Index vocabulary = 0;           ///< V
  Index width = 0;                ///< C
  double standard_deviation = 1;  ///< of the initial normal values
};

/// Looks up the row of a table for every id.
/// Shapes:  ids i32 [...] -> [..., width]; weight [vocabulary, width]
/// Throws:  ShapeError naming position and value of an id outside [0, vocabulary)
class Embedding : public Module {
 public:
  Embedding(const EmbeddingConfig& config, Generator& random)
      : weight_(Tensor::empty({config.vocabulary, config.width})) {
    random.fill_normal(weight_, 0, config.standard_deviation);
  }

  Tensor operator()(const Tensor& ids) const { return embedding(weight_, ids); }
  void visit(ParameterVisitor& visitor) override { visitor.parameter("weight", weight_); }

  /// The table, [V, C].
  Parameter& weight() { return weight_; }

 private:
  Parameter weight_;
};

}  // namespace tapeformer
