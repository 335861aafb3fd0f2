#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/nn/layer_record.h>

namespace tapeformer {

Tensor with_layer_losses(const Tensor& loss, const LayerRecord& record) {
  Tensor all = loss;
  const auto add_mean = [&](const Tensor& losses, double count) {
    if (losses.defined()) all = all + losses * (1 / count);
  };
  add_mean(record.router_losses, static_cast<double>(record.shares.size()));
  add_mean(record.index_losses, static_cast<double>(record.indexers));
  return all;
}

}  // namespace tapeformer
