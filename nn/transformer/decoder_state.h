#pragma once

#include <tapeformer/nn/transformer/layer_caches.h>

namespace tapeformer {

/// The caches of a decoder during generation, one row a sequence: for every layer the keys and values of the
/// tokens so far, and of the memory that the sequence reads. Decoder::start() makes one.
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
  std::vector<std::int32_t> memory_rows_;  // the row of the first memory that each row reads
  LayerCaches tokens_, cross_;             // self-attention, cross-attention
};

}  // namespace tapeformer
