#pragma once

#include <tapeformer/nn/attention/kv_cache.h>

#include <memory>
#include <vector>

namespace tapeformer {

/// The key-value caches of a stack of layers, one row a sequence.
class LayerCaches {
 public:
  explicit LayerCaches(std::vector<std::unique_ptr<KvCache>> layers) : layers_(std::move(layers)) {}

  KvCache& layer(std::size_t number) { return *layers_[number]; }
  /// Row i becomes the former row rows[i]; the number of rows may change. Throws: ShapeError
  void reorder(const std::vector<std::int32_t>& rows);
  /// Removes all tokens.
  void clear();
  /// Tokens in each row, the same in every layer.
  Index length() const { return layers_.back()->length(); }
  Index rows() const { return layers_.front()->rows(); }
  /// Bytes that the tokens use in all layers.
  Index bytes() const;
  /// For every layer; see KvCache.
  bool reserve(Index tokens);
  void set_length(Index length);

  /// While it lives, every layer writes one token a row at `positions`, i32 [R, 1].
  class Step {
   public:
    Step(LayerCaches& caches, const Tensor& positions);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    LayerCaches& caches_;
  };
  /// Defined only while a Step lives.
  const Tensor& positions() const { return layers_.front()->step().positions; }

 private:
  std::vector<std::unique_ptr<KvCache>> layers_;
};

}  // namespace tapeformer
