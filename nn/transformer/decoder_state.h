#pragma once

#include <tapeformer/nn/attention/kv_cache.h>

#include <memory>
#include <vector>

namespace tapeformer {

/// What a decoder keeps of the sequences that it is writing, a row each: the keys and values of their tokens,
/// and those of the memory that each of them reads, layer by layer. Decoder::start() makes one.
class DecoderState {
 public:
  struct Layer {
    std::unique_ptr<KvCache> self, cross;
  };
  DecoderState(Tensor memory, Tensor memory_mask, std::vector<Layer> layers);

  /// Row i becomes what row rows[i] was, its memory included; their number may change. Throws: ShapeError
  void reorder(const std::vector<std::int32_t>& rows);
  /// Forgets the tokens but not the memory.
  void forget_tokens();
  /// Tokens that every row has.
  Index length() const { return layers_.front().self->length(); }
  /// Bytes that the tokens and the memory's take in all caches.
  Index bytes() const;

 private:
  friend class Decoder;

  Tensor memory_, memory_mask_;            // [B, S, C] until the caches hold it, bool [R, S] or undefined
  std::vector<std::int32_t> memory_rows_;  // the row of the first memory that each row reads
  std::vector<Layer> layers_;
};

}  // namespace tapeformer
