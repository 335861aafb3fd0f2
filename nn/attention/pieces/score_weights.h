#pragma once

#include <tapeformer/autograd/config/names.h>
#include <tapeformer/nn/attention/pieces/piece.h>

namespace tapeformer {

template <>
inline constexpr EnumNames kNames<AttentionWeighting>{"weighting", {"softmax", "sigmoid"}};

/// Attention weights by another function of the scores than a plain softmax.
/// Math:    softmax with sinks: w_s = exp(s) / (exp(sink_h) + sum exp(s)); sigmoid: w_s = sigmoid(s + b_h)
/// Initial: sinks 0; b_h = -log(sigmoid_keys)
/// Source:  sinks: OpenAI 2025, arXiv:2508.10925; sigmoid: Ramapuram et al. 2024, arXiv:2409.04431
struct ScoreWeights {
  bool sinks = false;  ///< a learned score for each head, whose exponential joins softmax's sum
  AttentionWeighting weighting = AttentionWeighting::softmax;  ///< how scores become weights
  Index sigmoid_keys = 1;  ///< n: sigmoid weights have a learned bias for each head, -log n at first
  void describe(const FieldVisitor& in_models, const FieldVisitor& in_layers);
  static void complete(AttentionConfig& config);
  static MadePiece make(const AttentionConfig& config, Generator& random);
  static void add_cost(const AttentionConfig& config, CostSum& sum);
  static PieceCases cases();
};

}  // namespace tapeformer
