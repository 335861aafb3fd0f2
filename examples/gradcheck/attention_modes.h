#pragma once

#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/attention/attention.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Small, odd and all different, so that no two of them can be mixed up unnoticed.
struct CheckSizes {
  Index batch = 2;         ///< B
  Index queries = 5;       ///< T, and the length of self-attention
  Index keys = 7;          ///< S, of cross-attention
  Index width = 6;         ///< C
  Index memory_width = 5;  ///< of the keys' and values' input in cross-attention
  Index heads = 4;         ///< H
  Index groups = 2;        ///< G
  Index head_width = 4;    ///< D, of queries and keys; even, for rotary positions
  Index value_width = 3;   ///< E
  Index latent_width = 5;  ///< of latent attention's compressed keys and values
  Index hidden_width = 5;  ///< of additive attention's scores
  double dropout = 0.3;    ///< on the weights, in the modes that drop
  std::uint64_t seed = 1;  ///< of all values and masks
  Device device = default_device();
};

/// How an attention layer is used.
struct AttentionMode {
  std::string name;            ///< "cross causal"
  bool cross = false;          ///< queries and keys come from different tensors
  bool dropout = false;        ///< on the weights, from a stream that starts anew at every evaluation
  bool packed = false;         ///< one row that holds sequences of several lengths
  bool positions = false;      ///< position ids of its own, for rotary layers
  bool wants_context = false;  ///< anything that a layer without masks cannot do
};

/// A mode with its tensors, for a layer to be run in.
struct CheckSetting {
  CheckSizes sizes;
  DType type;
  bool cross;
  Index batch, queries, keys;
  double dropout;
  AttentionContext context;
  NamedTensors inputs;  ///< an additive mask whose gradient is checked, too
  Generator random;     ///< for the layer's values

  /// Standard normal values on the device; those of f32 are those of f64 rounded.
  Tensor normal(const Shape& shape, double mean = 0, double deviation = 1);
};

std::vector<AttentionMode> attention_modes();
/// `heads`: how many a mask tells apart.
CheckSetting setting_of(const AttentionMode& mode, const CheckSizes& sizes, Index heads, DType type);

}  // namespace tapeformer
