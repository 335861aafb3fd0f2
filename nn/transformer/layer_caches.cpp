#include <tapeformer/nn/transformer/layer_caches.h>

#include <algorithm>

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

}  // namespace tapeformer
