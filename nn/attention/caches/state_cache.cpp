#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/attention/caches/state_cache.h>

namespace tapeformer {

void StateCache::append(const Tensor& keys, const Tensor& /*values*/) {
  throw Error("[state_cache] a state holds no keys; got keys=" + keys.describe() +
              "; try the cache of the layer that makes them");
}

Tensor StateCache::state(Index rows_of_call) {
  if (length_ == 0) {
    convolution_.restart();
    return {};
  }
  if (rows_of_call != rows())
    throw ShapeError(
        format("[state_cache] the number of rows must stay the same; got {} after {} of {}; try reorder() or "
               "clear()",
               rows_of_call, number_of(rows(), "row"), number_of(length(), "token")));
  return state_;
}

void StateCache::require_unrecorded(const Tensor& x) {
  if (tape_for("state_cache", &x, 1) == nullptr) return;
  throw TapeError("[state_cache] a cached state has no gradient; got x=" + x.describe() +
                  "; try without a cache, or NoGradGuard");
}

void StateCache::advance(const Tensor& state, Index tokens) {
  require_unrecorded(state);
  const bool fits = state_.defined() && state_.shape() == state.shape() && state_.dtype() == state.dtype();
  if (!fits) state_ = Tensor::empty_like(state);
  state_.copy_from(state);  // graphs of steps refer to its address
  length_ += tokens;
}

void StateCache::pick(const std::vector<std::int32_t>& order) {
  pick_rows(state_, order);
  convolution_.reorder(order);
}

void StateCache::clear() {
  state_ = {};
  convolution_.clear();
  length_ = 0;
}

Index StateCache::bytes() const { return length_ > 0 ? state_.bytes() + convolution_.bytes() : 0; }

}  // namespace tapeformer
