#pragma once

#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/attention/attention.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Small and all different, so that a mix-up of two sizes is noticed.
struct CheckSizes {
  Index batch = 2;         ///< B
  Index queries = 5;       ///< T, also the length in self-attention
  Index keys = 7;          ///< S, in cross-attention
  Index width = 6;         ///< C
  Index memory_width = 5;  ///< width of the keys' and values' input in cross-attention
  Index heads = 4;         ///< H
  Index groups = 2;        ///< G
  Index head_width = 4;    ///< D, of queries and keys; even, for rotary positions
  Index value_width = 3;   ///< E
  Index latent_width = 5;  ///< width of latent attention's compressed keys and values
  Index hidden_width = 5;  ///< width of additive attention's hidden layer
  double dropout = 0.3;    ///< on the attention weights, in modes with dropout
  std::uint64_t seed = 1;  ///< for all values and masks
  Device device = default_device();
};

/// One way to call an attention layer.
struct AttentionMode {
  std::string name;            ///< "cross causal"
  bool cross = false;          ///< queries and keys come from different tensors
  bool dropout = false;        ///< on the weights, with the same mask in every evaluation
  bool packed = false;         ///< sequences of several lengths packed in one row
  bool positions = false;      ///< explicit position ids, for rotary layers
  bool wants_context = false;  ///< needs masks or other options of AttentionContext
};

/// A mode with its tensors, ready for a layer.
struct CheckSetting {
  CheckSizes sizes;
  DType type;
  bool cross;
  Index batch, queries, keys;
  double dropout;
  AttentionContext context;
  NamedTensors inputs;  ///< an additive mask, whose gradient is checked too
  Generator random;     ///< draws the layer's values

  /// Standard normal values on the device; f32 values are the rounded f64 values.
  Tensor normal(const Shape& shape, double mean = 0, double deviation = 1);
};

std::vector<AttentionMode> attention_modes();
/// `heads` is the number of heads that masks distinguish.
CheckSetting setting_of(const AttentionMode& mode, const CheckSizes& sizes, Index heads, DType type);

}  // namespace tapeformer
