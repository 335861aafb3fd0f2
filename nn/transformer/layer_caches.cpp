#include <tapeformer/nn/transformer/layer_caches.h>

namespace tapeformer {

void LayerCaches::reorder(const std::vector<std::int32_t>& rows) {
  for (const auto& layer : layers_) layer->reorder(rows);
}

void LayerCaches::clear() {
  for (const auto& layer : layers_) layer->clear();
}

Index LayerCaches::bytes() const {
  Index total = 0;
  for (const auto& layer : layers_) total += layer->bytes();
  return total;
}

}  // namespace tapeformer
