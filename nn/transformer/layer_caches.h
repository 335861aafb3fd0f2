#pragma once

#include <tapeformer/nn/attention/caches/kv_cache.h>
#include <tapeformer/nn/short_convolution.h>

namespace tapeformer {

/// The key-value caches of a stack of layers, one row per sequence, and the last inputs of the layers'
/// convolutions, if they have any. Layers that share keys and values share a cache.
class LayerCaches {
 public:
  /// One cache for every `sharing` layers in a row; `convolutions` is the number of layers with short
  /// convolutions.
  explicit LayerCaches(std::vector<std::unique_ptr<KvCache>> layers, std::size_t convolutions = 0,
                       std::size_t sharing = 1)
      : layers_(std::move(layers)), convolutions_(2 * convolutions), sharing_(sharing) {}

  /// The cache of a layer, from 0.
  KvCache& layer(std::size_t number) { return *layers_[number / sharing_]; }
  /// The addresses of the caches' keys or states. No cache may be empty.
  std::vector<const void*> memory() const;
  /// The two convolutions' caches of a layer; nullptr without convolutions.
  ConvolutionCache* convolutions(std::size_t number) {
    return convolutions_.empty() ? nullptr : &convolutions_[2 * number];
  }
  /// Row i becomes the former row rows[i]; the number of rows may change. Throws: ShapeError
  void reorder(const std::vector<std::int32_t>& rows);
  /// Removes all tokens.
  void clear();
  /// Tokens in each row, the same in every layer.
  Index length() const { return layers_.back()->length(); }
  /// Bytes that the tokens use in all layers, and their convolutions.
  Index bytes() const;
  /// KvCache::reserve() in every layer; true if all have the room.
  bool reserve(Index tokens);
  /// KvCache::set_length() in every layer. With length 0 convolutions start over; with any other they must
  /// already hold the tokens before the next one.
  void set_length(Index length);

  /// While it lives, every layer writes one token per row at `positions`, i32 [R, 1].
  class Step {
   public:
    /// Begins it in every layer.
    Step(LayerCaches& caches, const Tensor& positions);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    LayerCaches& caches_;
  };
  /// The positions of the Step that lives; undefined without one.
  const Tensor& positions() const { return layers_.front()->step().positions; }

 private:
  std::vector<std::unique_ptr<KvCache>> layers_;
  std::vector<ConvolutionCache> convolutions_;
  std::size_t sharing_;
};

/// The caches of a decoder during generation, one row per sequence: for every layer the keys and values of
/// the tokens so far, and of the memory that the sequence reads. Decoder::start() makes one.
class DecoderState {
 public:
  /// See Decoder::start().
  DecoderState(Tensor memory, const Tensor& memory_mask, LayerCaches tokens, LayerCaches cross);

  /// Row i becomes the former row rows[i], memory included; the number of rows may change. Throws: ShapeError
  void reorder(const std::vector<std::int32_t>& rows);
  /// The self-attention caches.
  LayerCaches& tokens() { return tokens_; }
  /// Tokens in each row.
  Index length() const { return tokens_.length(); }
  /// Bytes in use in all caches.
  Index bytes() const { return tokens_.bytes() + cross_.bytes(); }

 private:
  friend class Decoder;
  friend class LayerStack;

  Tensor memory_, memory_mask_;            // [B, S, C] until the caches hold it, bool [R, S] or undefined
  std::vector<std::int32_t> memory_rows_;  // for each row, its row in the original memory
  LayerCaches tokens_, cross_;             // self-attention, cross-attention
};

}  // namespace tapeformer
