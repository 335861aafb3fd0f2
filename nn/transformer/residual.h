#pragma once

#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/residual_norm.h>
#include <tapeformer/autograd/profile_part.h>
#include <tapeformer/autograd/tape/activation_checkpointing.h>
#include <tapeformer/nn/dropout.h>

namespace tapeformer {

/// The residual stream through a stack of layers. The addition of a sublayer's output is deferred to the next
/// norm, so that one pass over memory computes the sum and its norm.
/// Shapes:  all tensors [B, T, C]
class ResidualStream {
 public:
  /// Begins with x.
  explicit ResidualStream(const Tensor& x) : sum_(x) {}

  /// Adds dropout(branch).
  void add(const Tensor& branch, const Dropout& dropout) {
    add_pending();
    branch_ = branch;
    dropped_ = {dropout.active_probability(), dropout.next_key()};
  }
  /// The norm of the sum.
  template <class AnyNorm>
  Tensor normed(const AnyNorm& norm) {
    if (!branch_.defined()) return norm(sum_);
    SumAndNorm both = norm(sum_, std::exchange(branch_, Tensor()), dropped_);
    sum_ = std::move(both.sum);
    return std::move(both.y);
  }
  /// The sum, with all branches added.
  const Tensor& sum() {
    add_pending();
    return sum_;
  }

 private:
  void add_pending() {
    if (!branch_.defined()) return;
    sum_ = sum_ + dropout(std::exchange(branch_, Tensor()), dropped_.probability, dropped_.key);
  }

  Tensor sum_, branch_;  // branch_ is not yet added
  BranchDropout dropped_;
};

/// The place of a norm: before the sublayer, after the sum, on the sublayer's output, or nowhere.
enum class NormPlace { pre, post, branch, none };

/// A sublayer with its residual connection, named as a part in profiles.
/// Math:    pre-norm: x + dropout(f(norm(x))); post-norm: norm(x + dropout(f(x)));
///          branch: x + dropout(norm(f(x))); what is added to x is multiplied by `scale`
template <class AnyNorm, class Sublayer>
void residual(const char* name, ResidualStream& stream, NormPlace place, const AnyNorm& norm,
              const Dropout& dropout, const Sublayer& sublayer, double scale = 1) {
  const ProfilePart part(name);
  Tensor branch = sublayer(place == NormPlace::pre ? stream.normed(norm) : stream.sum());
  if (place == NormPlace::branch) branch = norm(branch);
  if (scale != 1) branch = branch * scale;
  stream.add(branch, dropout);
  if (place == NormPlace::post) stream = ResidualStream(stream.normed(norm));
}

/// Calls layer(stream); with `recompute` as an activation checkpoint of the stream and of further tensors
/// that the layer reads, some of which may be undefined.
template <class Layer, class... Read>
void run_layer(ResidualStream& stream, bool recompute, const Layer& layer, const Read&... read) {
  if (!recompute) return layer(stream);
  const Tensor x = stream.sum();
  const auto body = [x, layer] {
    ResidualStream own(x);
    layer(own);
    return own.sum();
  };
  stream = ResidualStream(checkpoint({x, read...}, body));
}

}  // namespace tapeformer
