#pragma once

#include <tapeformer/autograd/tensor.h>

#include <iosfwd>
#include <string>
#include <vector>

namespace tapeformer {

/// Numbers that a text on attention printed, and what our layers make of the same input and the same random
/// stream: rows parted by " / ", each number to the decimals that were printed.
struct AttentionFigure {
  std::string title, published, ours;
  bool matches() const { return ours == published; }
};

/// The attention weights and outputs of six tokens of width three ("Your journey starts with one step"), by
/// the layers of nn/attention with weights drawn from TorchGenerator.
std::vector<AttentionFigure> attention_figures();

/// What the size of the scores does to a softmax over ten keys; queries and keys are standard normal.
struct ScalingEffect {
  Index width = 0;                  ///< of queries and keys
  double variance = 0;              ///< of their products
  double entropy = 0, largest = 0;  ///< of the softmax, nats, and its largest weight; means over rows
  double scaled_variance = 0;       ///< the same after dividing by sqrt(width)
  double scaled_entropy = 0, scaled_largest = 0;
};
ScalingEffect scaling_effect(Index width, Index products);

/// Causal weights [6, 6] of the same tokens, made in two ways that are one.
struct CausalWeights {
  Tensor renormalised;    ///< softmax over all keys, later ones set to zero, rows divided by their sums
  Tensor minus_infinity;  ///< later scores set to minus infinity, softmax
};
CausalWeights causal_weights();

/// Prints all of the above. True if every figure agrees in every decimal, and so do both causal ways.
bool print_attention_figures(std::ostream& out);

}  // namespace tapeformer
