#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace tapeformer {

/// Values printed in a text on attention, and those that our layers compute from the same input and random
/// stream: rows separated by " / ", each value to the printed decimals.
struct AttentionFigure {
  std::string title, published, ours;
  bool matches() const { return ours == published; }
};

/// The attention weights and outputs of six tokens of width three ("Your journey starts with one step"),
/// computed by the layers of nn/attention with weights drawn from TorchGenerator.
std::vector<AttentionFigure> attention_figures();

/// Prints them. True if every printed decimal agrees.
bool print_attention_figures(std::ostream& out);

}  // namespace tapeformer
