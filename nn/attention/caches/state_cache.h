#pragma once

#include <tapeformer/nn/attention/caches/kv_cache.h>
#include <tapeformer/nn/short_convolution.h>

namespace tapeformer {

/// The cache of linear attention, in place of keys and values: for each row a state, and the last inputs of
/// its convolution. Its bytes are the same for one token and for a million, so neither capacities nor blocks
/// apply to it.
class StateCache : public KvCache {
 public:
  /// A cache for layers with these widths.
  explicit StateCache(const CacheWidths& widths) : KvCache(widths, 0) {}

  /// Throws: Error, since there are no keys
  void append(const Tensor& keys, const Tensor& values) override;
  /// All states, [R, widths.state].
  Tensor keys() const override { return state_; }
  Tensor values() const override { return {}; }
  Index rows() const override { return state_.defined() ? state_.size(0) : 0; }
  void clear() override;
  Index bytes() const override;
  /// True once there is a state, which keeps its address.
  bool reserve(Index /*tokens*/) override { return state_.defined(); }

  /// The state before the next tokens of `rows` rows; undefined for zeros.
  /// Throws: ShapeError if the number of rows changes
  Tensor state(Index rows);
  /// Throws: TapeError for a recorded tensor, of which no state can be made
  static void require_unrecorded(const Tensor& x);
  /// Sets the state [R, widths.state] after `tokens` more tokens. Throws: TapeError for a recorded one
  void advance(const Tensor& state, Index tokens);
  /// The last inputs of the convolution of the tokens' projections.
  ConvolutionCache& convolution() { return convolution_; }

 private:
  void pick(const std::vector<std::int32_t>& order) override;
  Tensor state_;
  ConvolutionCache convolution_;
};

}  // namespace tapeformer
