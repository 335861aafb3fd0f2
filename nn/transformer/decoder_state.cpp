#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/picked_rows.h>
#include <tapeformer/nn/transformer/decoder_state.h>

#include <numeric>

namespace tapeformer {

DecoderState::DecoderState(Tensor memory, const Tensor& memory_mask, LayerCaches tokens, LayerCaches cross)
    : memory_(std::move(memory)),
      memory_mask_(memory_mask.defined() ? memory_mask.clone() : memory_mask),  // reordered in place
      memory_rows_(static_cast<std::size_t>(memory_.size(0))),
      tokens_(std::move(tokens)),
      cross_(std::move(cross)) {
  std::iota(memory_rows_.begin(), memory_rows_.end(), 0);
}

void DecoderState::reorder(const std::vector<std::int32_t>& rows) {
  std::vector<std::int32_t> memory_rows;
  for (const std::int32_t row : rows) {
    if (row < 0 || static_cast<std::size_t>(row) >= memory_rows_.size())
      throw ShapeError(format("[decoder_state] reorder takes rows that are there; got row {} of {}", row,
                              memory_rows_.size()));
    memory_rows.push_back(memory_rows_[static_cast<std::size_t>(row)]);
  }
  tokens_.reorder(rows);
  if (memory_rows == memory_rows_) return;  // beams of one sentence swap, and still read the same memory
  if (cross_.length() == 0) memory_ = picked_rows(memory_, rows);
  cross_.reorder(rows);
  if (memory_mask_.defined()) pick_rows(memory_mask_, rows);
  memory_rows_ = std::move(memory_rows);
}

}  // namespace tapeformer
