#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/picked_rows.h>
#include <tapeformer/nn/transformer/decoder_state.h>

#include <numeric>
#include <utility>

namespace tapeformer {

DecoderState::DecoderState(Tensor memory, Tensor memory_mask, std::vector<Layer> layers)
    : memory_(std::move(memory)),
      memory_mask_(std::move(memory_mask)),
      memory_rows_(static_cast<std::size_t>(memory_.size(0))),
      layers_(std::move(layers)) {
  std::iota(memory_rows_.begin(), memory_rows_.end(), 0);
}

void DecoderState::reorder(const std::vector<std::int32_t>& rows) {
  std::vector<std::int32_t> memory_rows;
  for (const std::int32_t row : rows) {
    if (row < 0 || static_cast<std::size_t>(row) >= memory_rows_.size()) {
      throw ShapeError("[decoder_state] reorder takes rows that are there; got row " + std::to_string(row) +
                       " of " + std::to_string(memory_rows_.size()));
    }
    memory_rows.push_back(memory_rows_[static_cast<std::size_t>(row)]);
  }
  for (const Layer& layer : layers_) layer.self->reorder(rows);
  if (memory_rows == memory_rows_) return;  // beams of one sentence change places, and read the same memory
  const bool is_cached = layers_.front().cross->length() > 0;
  for (const Layer& layer : layers_) layer.cross->reorder(rows);
  if (!is_cached) memory_ = picked_rows(memory_, rows);
  if (memory_mask_.defined()) memory_mask_ = picked_rows(memory_mask_, rows);
  memory_rows_ = std::move(memory_rows);
}

void DecoderState::forget_tokens() {
  for (const Layer& layer : layers_) layer.self->clear();
}

Index DecoderState::bytes() const {
  Index total = 0;
  for (const Layer& layer : layers_) total += layer.self->bytes() + layer.cross->bytes();
  return total;
}

}  // namespace tapeformer
