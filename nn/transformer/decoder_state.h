#pragma once

#include <tapeformer/nn/transformer/layer_caches.h>

#include <vector>

namespace tapeformer {

/// What a decoder keeps of the sequences that it is writing, a row each: the keys and values of their tokens,
/// and those of the memory that each of them reads, layer by layer. Decoder::start() makes one.
class DecoderState {
 public:
  DecoderState(Tensor memory, const Tensor& memory_mask, LayerCaches tokens, LayerCaches cross);

  /// Row i becomes what row rows[i] was, its memory included; their number may change. Throws: ShapeError
  void reorder(const std::vector<std::int32_t>& rows);
  /// What it keeps of the sequences themselves.
  LayerCaches& tokens() { return tokens_; }
  /// Tokens that every row has.
  Index length() const { return tokens_.length(); }
  /// Bytes that the tokens and the memory's take in all caches.
  Index bytes() const { return tokens_.bytes() + cross_.bytes(); }

 private:
  friend class Decoder;

  Tensor memory_, memory_mask_;            // [B, S, C] until the caches hold it, bool [R, S] or undefined
  std::vector<std::int32_t> memory_rows_;  // the row of the first memory that each row reads
  LayerCaches tokens_, cross_;             // of self-attention, of the attention to the memory
};

}  // namespace tapeformer
