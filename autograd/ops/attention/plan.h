#pragma once

#include <tapeformer/autograd/kernels/attention.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/attention/visibility.h>
#include <tapeformer/autograd/tape/tape.h>

#include <functional>

namespace tapeformer {

// The parts of every kind of attention: checks, the kernels' argument, the tiled and the composed path.

/// Checks the inputs [B, T, H, D], [B, S, G, D] and [B, S, G, E] and the options of every kind of attention.
/// Throws:  ShapeError, DTypeError naming `op`, the shapes and a remedy
void check_attention(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                     const AttentionOptions& options);

/// check_attention() for the masks alone, of queries [B, T, H, D] and S keys.
void check_masks(const char* op, const Tensor& query, Index S, const AttentionMasks& masks);

/// check_attention() for queries, keys and values in one projection.
void check_packed_attention(const char* op, const Tensor& packed, const PackedHeads& heads,
                            const AttentionOptions& options);

struct AttentionSizes {
  Index batch, queries, keys;    // B, T, S
  Index heads, groups;           // H, G
  Index key_width, value_width;  // D, E
};

/// The kernels' argument, and the tensors that its pointers point into.
struct AttentionPlan {
  kernels::AttentionShape shape;
  AttentionOptions options;
  VisibleKeys visible;
  Tensor positions;     ///< of the queries, for a relative bias
  Tensor bias() const;  ///< the additive mask, in the wide type; undefined if there is none
};

/// The factor of the scores for keys of width D.
double attention_scale(const AttentionOptions& options, Index D);

/// The plan for separate queries, keys and values on `device`; the options must have been checked.
AttentionPlan plan_attention(const AttentionSizes& sizes, const AttentionOptions& options, Device device);
AttentionPlan plan_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionOptions& options);

/// True if the composed path is needed, the only one that returns weights.
inline bool needs_composed(const AttentionOptions& options) { return options.weights != nullptr; }

/// The inputs. `key` and `value` are undefined if `query` is a projection that holds all three side by side;
/// `weight` is undefined unless the scores are additive.
struct AttentionTensors {
  Tensor query, key, value, weight;
};
/// The attention of a plan in plain operations.
using ComposedAttention = Tensor (*)(const AttentionTensors& in, const AttentionPlan& plan);
/// Attention by the tiled kernels, recorded; tensors in the plan's options get gradients too.
Tensor tiled_attention(const char* op, const AttentionPlan& plan, const AttentionTensors& in,
                       ComposedAttention fallback);

/// Adds to a Profile this many products over the key's and the value's width for each pair within the ranges
/// of visible keys. Pairs that a mask removes are computed nevertheless, and count. On a GPU a profile waits
/// for the ranges.
void count_products(const char* op, const AttentionPlan& plan, Index of_key_width, Index of_value_width);

/// [B, S, G, D] -> [B, S, H, D]: each head for all heads of queries that share it.
Tensor repeated_heads(const Tensor& x, Index heads);
/// query [B, T, H, D], key [B, S, H, D] -> scores [B, H, T, S]
using AttentionScores = std::function<Tensor(const Tensor& query, const Tensor& key)>;

/// Attention in plain operations around any scores. Masked rows are first set to zero, and grouped heads are
/// repeated; then come the additive mask, the masks, softmax, dropout and the values. The inputs must have
/// been checked.
Tensor composed_attention_of(const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionOptions& options, const AttentionScores& scores);

}  // namespace tapeformer
