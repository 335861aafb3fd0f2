#pragma once

#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/nn/attention/caches/kv_cache.h>
#include <tapeformer/nn/layer_record.h>
#include <tapeformer/nn/module.h>

namespace tapeformer {

/// Keys and values by head; values are undefined where everything is in the keys.
struct KeyValueHeads {
  /// [B, S, G, D] and [B, S, G, E].
  Tensor key_bsgd, value_bsge;
};

/// The masks and other optional arguments of a call.
struct AttentionContext : AttentionMasks {
  /// Position of every query, i32 [T] or [B, T], for layers with rotary positions. Undefined: 0, 1, ...,
  /// continued from the cached tokens.
  Tensor positions;
  /// The rotary angles at those positions, from angles(), shared by the layers of a stack. Undefined: each
  /// layer computes its own.
  RotaryAngles angles;
  /// For layers with value_residual: the values of this call's keys in the first layer, [B, S, G, E].
  Tensor first_values;
  /// For layers with shared_keys: the keys and values that another layer wrote to `new_kv`. With a cache,
  /// the layer reads everything that it attends to from there.
  KeyValueHeads shared;
  /// Receives this call's keys and values in the form that attention reads, for other layers.
  KeyValueHeads* new_kv = nullptr;
  /// Keys and values of earlier calls. Self-attention appends this call's; cross-attention stores the
  /// memory's in its first call and does not read the memory again.
  KvCache* cache = nullptr;
  Tensor* weights = nullptr;      ///< receives the attention weights [B, H, T, S]
  LayerRecord* record = nullptr;  ///< receives the losses of indexers
};

/// The interface of all attention layers, so that transformer layers take any of them.
class Attention : public Module {
 public:
  /// Self-attention when query and memory are the same tensor, else cross-attention.
  /// Shapes:  query [B, T, C], memory [B, S, memory width] -> y [B, T, O]
  virtual Tensor operator()(const Tensor& query, const Tensor& memory,
                            const AttentionContext& context = {}) const = 0;
  /// The angles by which self-attention rotates its queries and keys; nothing without rotary positions. A
  /// stack of layers that rotate alike asks one of them, and passes the result to the others in the context.
  virtual RotaryAngles angles(const Tensor& /*query*/, const AttentionContext& /*context*/) const {
    return {};
  }
  /// The values that this layer's cache holds per token, or per row.
  virtual CacheWidths cache_widths() const = 0;
};

/// Whether a and b are one tensor, not just equal: if query and memory are, it is self-attention.
inline bool is_same_tensor(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.state() == b.state();
}

}  // namespace tapeformer
