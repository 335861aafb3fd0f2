#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/nn/transformer/layer_caches.h>

#include <algorithm>
#include <numeric>

namespace tapeformer {

void LayerCaches::reorder(const std::vector<std::int32_t>& rows) {
  for (const auto& layer : layers_) layer->reorder(rows);
  for (ConvolutionCache& convolution : convolutions_) convolution.reorder(rows);
}

void LayerCaches::clear() {
  for (const auto& layer : layers_) layer->clear();
  for (ConvolutionCache& convolution : convolutions_) convolution.clear();
}

Index LayerCaches::bytes() const {
  Index total = 0;
  for (const auto& layer : layers_) total += layer->bytes();
  for (const ConvolutionCache& convolution : convolutions_) total += convolution.bytes();
  return total;
}

std::vector<const void*> LayerCaches::memory() const {
  std::vector<const void*> places;
  for (const auto& layer : layers_) places.push_back(layer->keys().state()->storage->data);
  return places;
}

bool LayerCaches::reserve(Index tokens) {
  return std::all_of(layers_.begin(), layers_.end(),
                     [&](const auto& layer) { return layer->reserve(tokens); });
}

void LayerCaches::set_length(Index length) {
  for (const auto& layer : layers_) layer->set_length(length);
  if (length > 0) return;
  for (ConvolutionCache& convolution : convolutions_) convolution.restart();
}

LayerCaches::Step::Step(LayerCaches& caches, const Tensor& positions) : caches_(caches) {
  const CacheStep step = step_to(positions);
  for (const auto& layer : caches_.layers_) layer->set_step(step);
}

LayerCaches::Step::~Step() {
  for (const auto& layer : caches_.layers_) layer->set_step({});
}

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
      throw ShapeError(
          format("[decoder_state] reorder takes existing rows; got row {} of {}", row, memory_rows_.size()));
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
