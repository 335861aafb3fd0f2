#pragma once

#include <tapeformer/autograd/ops/elementwise.h>

namespace tapeformer {

/// The results of a model's layers besides their outputs: in a call, each router of experts and each indexer
/// of attention adds its own.
struct LayerRecord {
  Tensor router_losses;  ///< the sum of the routers' losses; undefined outside training and without any
  TensorList shares;     ///< [E] of each router: its experts' shares of all choices
  Tensor index_losses;   ///< the sum of the indexers' losses, likewise
  Index indexers = 0;    ///< their number
};

/// A model's loss with the means of its routers' and its indexers' losses, if there are any.
inline Tensor with_layer_losses(const Tensor& loss, const LayerRecord& record) {
  Tensor all = loss;
  const auto add_mean = [&](const Tensor& losses, double count) {
    if (losses.defined()) all = all + losses * (1 / count);
  };
  add_mean(record.router_losses, static_cast<double>(record.shares.size()));
  add_mean(record.index_losses, static_cast<double>(record.indexers));
  return all;
}

}  // namespace tapeformer
