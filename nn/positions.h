#pragma once

#include <tapeformer/autograd/config/names.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/module.h>

namespace tapeformer {

/// How a model gets the positions of its tokens.
enum class PositionKind {
  sinusoidal,
  learned,
  rotary,   ///< nothing is added here: attention rotates queries and keys
  alibi,    ///< nothing is added here: attention lowers scores by the distance of query and key
  buckets,  ///< likewise: it learns a bias of the scores for each head and bucket of distances, as T5 does
  none,     ///< only causal masks give the order
  sinusoidal_halves,   ///< sinusoidal, with the sines before the cosines
  sinusoidal_fairseq,  ///< likewise, with other frequencies, and from position 2 on, as in M2M100
};
template <>
inline constexpr EnumNames kNames<PositionKind>{"[positions] the kind",
                                                {"sinusoidal", "learned", "rotary", "alibi", "buckets",
                                                 "none", "sinusoidal_halves", "sinusoidal_fairseq"}};
/// True for sines and cosines in any order.
inline bool is_sinusoidal(PositionKind kind) {
  return kind == PositionKind::sinusoidal || kind >= PositionKind::sinusoidal_halves;
}
/// True for kinds with a table, whose size limits sequences.
inline bool has_table(PositionKind kind) { return is_sinusoidal(kind) || kind == PositionKind::learned; }

struct PositionsConfig {
  PositionKind kind = PositionKind::sinusoidal;  ///< the kind of positions
  Index width = 0;                               ///< C
  Index most = 512;                              ///< the number of positions
};

/// The first token that a model with a table of `context` positions sees of a growing row of `length` tokens:
/// the very first while all have positions. Beyond that, the older half of the context is dropped whenever
/// it is full, so that a cache, all of whose tokens change position then, is seldom rebuilt.
/// Math:    0 if length <= context, else step * ceil((length - context) / step), step = ceil(context / 2)
/// Throws:  Error unless context is positive
Index context_start(Index length, Index context);

/// Adds to every token a vector that encodes its position.
/// Math:    sinusoidal: p[t, 2i] = sin(t / 10000^(2i/C)), p[t, 2i+1] = cos(same); sinusoidal_halves: these
///          components in the order 0, 2, 4, ..., 1, 3, 5, ...; sinusoidal_fairseq: p[t, i] =
///          sin((t + 2) / 10000^(i/(n-1))), p[t, n+i] = cos(same), n = floor(C/2), and 0 where C is odd;
///          learned: a trained table; others: 0
/// Shapes:  x [B, T, C] -> [B, T, C], T <= most where there is a table
/// Throws:  ShapeError if the sequence is longer than `most`
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.5; none: Haviv et al. 2022, arXiv:2203.16634
class Positions : public Module {
 public:
  Positions(const PositionsConfig& config, Generator& random);

  /// `first` is the position of x's first token.
  Tensor operator()(const Tensor& x, Index first = 0) const;
  /// `at`, i32 [B, T], holds every token's position.
  Tensor operator()(const Tensor& x, const Tensor& at) const;
  void visit(ParameterVisitor& visitor) override;

 private:
  Tensor sinusoids_;  // f64 [most, C]
  Parameter weight_;  // [most, C]
};

}  // namespace tapeformer
