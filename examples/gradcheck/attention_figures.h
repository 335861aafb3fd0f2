#pragma once

#include <tapeformer/autograd/tensor.h>

#include <iosfwd>
#include <string>
#include <vector>

namespace tapeformer {

/// Numbers printed in a text on attention, and the same computed by our layers from the same input and random
/// stream: rows separated by " / ", each number to the printed decimals.
struct AttentionFigure {
  std::string title, published, ours;
  bool matches() const { return ours == published; }
};

/// The attention weights and outputs of six tokens of width three ("Your journey starts with one step"),
/// computed by the layers of nn/attention with weights drawn from TorchGenerator.
std::vector<AttentionFigure> attention_figures();

/// How scaling the scores affects a softmax over ten keys; queries and keys are standard normal.
struct ScalingEffect {
  Index width = 0;                  ///< width of queries and keys
  double variance = 0;              ///< variance of their products
  double entropy = 0, largest = 0;  ///< of the softmax: entropy in nats, largest weight; means over rows
  double scaled_variance = 0;       ///< the same after dividing by sqrt(width)
  double scaled_entropy = 0, scaled_largest = 0;
};
ScalingEffect scaling_effect(Index width, Index products);

/// Causal weights [6, 6] of the same tokens, computed in two equivalent ways.
struct CausalWeights {
  Tensor renormalised;    ///< softmax over all keys, later ones set to zero, rows divided by their sums
  Tensor minus_infinity;  ///< later scores set to minus infinity, softmax
};
CausalWeights causal_weights();

/// Prints all of the above. True if every printed decimal and both causal computations agree.
bool print_attention_figures(std::ostream& out);

}  // namespace tapeformer
