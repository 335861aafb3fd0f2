#pragma once

#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/residual_norm.h>
#include <tapeformer/nn/dropout.h>

#include <utility>

namespace tapeformer {

/// The residual stream through a stack of layers. The addition of a sublayer's output is deferred to the next
/// norm, so that one pass over memory computes the sum and its norm.
/// Shapes:  all tensors [B, T, C]
class ResidualStream {
 public:
  explicit ResidualStream(const Tensor& x) : sum_(x) {}

  /// Adds dropout(branch).
  void add(const Tensor& branch, const Dropout& dropout) {
    settle();
    branch_ = branch;
    dropped_ = {dropout.active_probability(), dropout.next_key()};
  }
  /// norm(the sum)
  template <class AnyNorm>
  Tensor normed(const AnyNorm& norm) {
    if (!branch_.defined()) return norm(sum_);
    SumAndNorm both = norm(sum_, std::exchange(branch_, Tensor()), dropped_);
    sum_ = std::move(both.sum);
    return std::move(both.y);
  }
  const Tensor& sum() {
    settle();
    return sum_;
  }

 private:
  void settle() {
    if (!branch_.defined()) return;
    sum_ = sum_ + dropout(std::exchange(branch_, Tensor()), dropped_.probability, dropped_.key);
  }

  Tensor sum_, branch_;  // branch_ is not added yet
  BranchDropout dropped_;
};

/// A sublayer with its residual connection.
/// Math:    pre-norm: x + dropout(f(norm(x))); post-norm: norm(x + dropout(f(x)))
template <class AnyNorm, class Sublayer>
void residual(ResidualStream& stream, bool norm_first, const AnyNorm& norm, const Dropout& dropout,
              const Sublayer& sublayer) {
  stream.add(sublayer(norm_first ? stream.normed(norm) : stream.sum()), dropout);
  if (!norm_first) stream = ResidualStream(stream.normed(norm));
}

}  // namespace tapeformer
