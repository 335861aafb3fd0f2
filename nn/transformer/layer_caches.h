#pragma once

#include <tapeformer/nn/attention/kv_cache.h>

#include <memory>
#include <vector>

namespace tapeformer {

/// The caches of a stack of layers: what it keeps of the sequences it has seen, a row each.
class LayerCaches {
 public:
  explicit LayerCaches(std::vector<std::unique_ptr<KvCache>> layers) : layers_(std::move(layers)) {}

  KvCache& layer(std::size_t number) { return *layers_[number]; }
  /// Row i becomes what row rows[i] was; their number may change. Throws: ShapeError
  void reorder(const std::vector<std::int32_t>& rows);
  /// Forgets everything.
  void clear();
  /// Tokens that every row has.
  Index length() const { return layers_.front()->length(); }
  Index rows() const { return layers_.front()->rows(); }
  /// Bytes that the tokens take in all layers.
  Index bytes() const;

 private:
  std::vector<std::unique_ptr<KvCache>> layers_;
};

}  // namespace tapeformer
