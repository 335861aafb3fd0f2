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
  /// Tokens that every row has in every layer.
  Index length() const { return layers_.back()->length(); }
  Index rows() const { return layers_.front()->rows(); }
  /// Bytes that the tokens take in all layers.
  Index bytes() const;
  /// Of every layer: see KvCache.
  bool reserve(Index tokens);
  void set_length(Index length);

  /// While it lives, one token of each row goes to `positions`, i32 [R, 1], in every layer.
  class Step {
   public:
    Step(LayerCaches& caches, const Tensor& positions);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    LayerCaches& caches_;
  };
  /// Undefined but while there is a Step.
  const Tensor& positions() const { return layers_.front()->step().positions; }

 private:
  std::vector<std::unique_ptr<KvCache>> layers_;
};

}  // namespace tapeformer
