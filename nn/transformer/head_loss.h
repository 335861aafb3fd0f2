#pragma once

#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

struct HeadConfig {
  Index width = 0;       ///< C
  Index vocabulary = 0;  ///< V
  bool bias = true;      ///< on the logits
  double softcap = 0;    ///< c > 0: the logits are c tanh(x / c)
};

/// Projects the final states of a model to logits.
/// Math:    x = states weight^T + bias; logits = x, or with a softcap c tanh(x / c)
/// Shapes:  states [..., C] -> [..., V]; weight [V, C], bias [V]
/// Initial: as Linear
class Head : public Linear {
 public:
  Head(const HeadConfig& config, Generator& random);

  Tensor operator()(const Tensor& states) const;
  /// As Linear's, but it never has an adapter.
  void visit(ParameterVisitor& visitor) override;
  /// The cap of the logits; 0 for none.
  double softcap() const { return softcap_; }

 private:
  double softcap_;
};

/// How head_loss() computes the loss; the value only changes by rounding.
struct HeadLossConfig {
  bool fused = false;  ///< compute the logits chunk by chunk, so that they are never stored as a whole
  Index chunk = 0;     ///< rows of a chunk when fused; 0 chooses
};

/// cross_entropy(head(states), targets, options); a softcap of the head replaces that of the options. On a
/// GPU, fused or not, the loss writes the gradient over the logits while it reads them.
/// Shapes:  states [..., C], targets i32 [...] -> []
Tensor head_loss(const Head& head, const Tensor& states, const Tensor& targets,
                 const CrossEntropyOptions& options = {}, const HeadLossConfig& config = {});

}  // namespace tapeformer
