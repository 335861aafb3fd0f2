#pragma once

#include <tapeformer/autograd/tensor.h>

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
Tensor with_layer_losses(const Tensor& loss, const LayerRecord& record);

}  // namespace tapeformer
