#pragma once

#include <tapeformer/autograd/config/config_field.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/nn/attention/attention.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tapeformer {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// The sizes of a check, small and mostly different, so that most mix-ups are noticed.
struct CheckSizes {
  Index batch = 2, queries = 5, keys = 7, width = 6, memory_width = 5, heads = 4, groups = 2, head_width = 4,
        value_width = 3, latent_width = 5, hidden_width = 5;
  double dropout = 0.3;    ///< on the attention weights, in modes with dropout
  std::uint64_t seed = 1;  ///< for all values and masks
  Device device = default_device();

  void describe(const FieldVisitor& field) {
    field("batch", batch, "B, sequences", kPositiveSize);
    field("queries", queries, "T, queries, and tokens in self-attention", kPositiveSize);
    field("keys", keys, "S, keys and values in cross-attention", kPositiveSize);
    field("width", width, "C, width of the queries' input and of outputs", kPositiveSize);
    field("memory_width", memory_width, "width of the keys' and values' input in cross-attention",
          kPositiveSize);
    field("heads", heads, "H, query heads; a multiple of the groups", kPositiveSize);
    field("groups", groups, "G, key and value heads of grouped-query attention", kPositiveSize);
    field("head_width", head_width, "D, width of a head's queries and keys; even", kPositiveSize);
    field("value_width", value_width, "E, width of a head's values", kPositiveSize);
    field("latent_width", latent_width, "width of latent attention's compressed keys and values",
          kPositiveSize);
    field("hidden_width", hidden_width, "hidden width of additive attention's scores", kPositiveSize);
  }
};

struct CheckSetting;

/// One way to call an attention layer.
struct AttentionMode {
  std::string name;    ///< "cross causal"
  bool cross = false;  ///< queries and keys come from different tensors
  bool plain = false;  ///< no masks or other options of AttentionContext
  /// Sets the masks and options, some of which differ by head.
  std::function<void(CheckSetting&, Index heads)> apply = {};
  bool dropout = false;    ///< on the weights, with the same mask in every evaluation
  bool packed = false;     ///< sequences of several lengths packed in one row
  bool positions = false;  ///< explicit position ids, for rotary layers
};

/// A mode with its tensors, ready for a layer.
struct CheckSetting {
  CheckSizes sizes;
  DType type;
  bool cross;
  Index batch, queries, keys;
  double dropout;
  Generator random;  ///< draws the layer's values
  AttentionContext context = {};
  NamedTensors inputs = {};  ///< an additive mask, whose gradient is checked too

  /// Standard normal values on the device; f32 values are the rounded f64 values.
  Tensor normal(const Shape& shape);
};

std::vector<AttentionMode> attention_modes();
/// `heads` is the number of heads that masks distinguish.
CheckSetting setting_of(const AttentionMode& mode, const CheckSizes& sizes, Index heads, DType type);

}  // namespace tapeformer
