#pragma once

#include <tapeformer/nn/attention/caches/kv_cache.h>

namespace tapeformer {

/// Keeps the tokens of each row consecutively in one buffer [R, room, width], which is returned without a
/// copy. The room is the capacity, if there is one; otherwise it doubles when full.
class ContiguousCache : public KvCache {
 public:
  ContiguousCache(const CacheConfig& config, const CacheWidths& widths) : KvCache(widths, config.capacity) {}

  void append(const Tensor& keys, const Tensor& values) override;
  Tensor keys() const override { return keys_; }
  Tensor values() const override { return values_; }
  Index rows() const override { return keys_.defined() ? keys_.size(0) : 0; }
  void clear() override;
  Index bytes() const override;
  bool reserve(Index tokens) override;

 private:
  void pick(const std::vector<std::int32_t>& order) override;
  /// Room for `tokens` tokens in total, with the rows, width and type of `keys` and `values`.
  void make_room(Index tokens, const Tensor& keys, const Tensor& values);

  Tensor keys_, values_;  // [R, room, width]
};

}  // namespace tapeformer
