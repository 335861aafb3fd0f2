#pragma once

#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/module.h>

#include <string>

namespace tapeformer {

enum class PositionKind {
  sinusoidal,
  learned,
  rotary,  ///< nothing is added here: attention turns queries and keys
};
const char* name_of(PositionKind kind);
/// Throws: Error listing the names there are.
PositionKind position_kind(const std::string& name);

struct PositionsConfig {
  PositionKind kind = PositionKind::sinusoidal;
  Index width = 0;
  Index most = 512;  ///< positions there are
};

/// The first token that a model with a table of `context` positions looks at in a sequence of `length`
/// tokens: the very first as long as there are positions for all. Then the older half of the context is
/// dropped at once, whenever it is full, so that a cache, whose tokens must all move, is seldom built anew.
/// Math:    0 if length <= context, else step * ceil((length - context) / step), step = ceil(context / 2)
/// Throws:  Error unless context is positive
Index context_start(Index length, Index context);

/// Adds to every token a vector that says where it stands.
/// Math:    sinusoidal: p[t, 2i] = sin(t / 10000^(2i/C)), p[t, 2i+1] = cos(same); learned: a trained table;
///          rotary: 0
/// Shapes:  x [B, T, C] -> [B, T, C], T <= most unless rotary
/// Throws:  ShapeError if the sequence is longer than `most`
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.5
class Positions : public Module {
 public:
  Positions(const PositionsConfig& config, Generator& random);

  /// `first` is the position of x's first token.
  Tensor operator()(const Tensor& x, Index first = 0) const;
  /// Every token stands at its place of `at`, i32 [B, T].
  Tensor operator()(const Tensor& x, const Tensor& at) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  Tensor sinusoids_;  // f64 [most, C]
  Parameter weight_;  // [most, C]
};

}  // namespace tapeformer
