#pragma once

#include <tapeformer/autograd/kernels/score_functions.h>
#include <tapeformer/autograd/ops/dropout.h>
#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

using kernels::AttentionWeighting;
using kernels::ScoreFunction;

/// The alignment of the diagonal of a causal mask or a window if there are more or fewer keys than queries.
enum class CausalAlignment {
  bottom_right,  ///< the last query has the position of the last key, as decoding with a cache needs
  top_left,      ///< the first query has the position of the first key, as in PyTorch's is_causal
};

/// The window_before or window_after of a window that has no limit on that side.
constexpr Index kUnlimited = -1;

/// The keys that each query may attend to; in every boolean mask true means may attend. All masks apply
/// together.
/// Query t has position p = t + offset among the keys, with offset S - T (bottom_right) or 0 (top_left),
/// where S is at most key_lengths. It may see key s if
/// not causal, or s <= p, or s < prefix_lengths[b]; and p - window_before <= s <= p + window_after;
/// and s < key_lengths[b], and both lie in the same packed sequence, and key_mask, query_mask and mask allow
/// it. In packed sequences t, s, S and T count from the start of the sequence, and lengths are of sequences.
struct AttentionMasks {
  Tensor mask;          ///< bool, or floating and added to the scores; broadcasts to [B, H, T, S]
  Tensor key_mask;      ///< bool [B, S]: true for real keys and values
  Tensor query_mask;    ///< bool [B, T]: true for real queries
  bool causal = false;  ///< no query sees keys later than its own position
  /// Alignment of the positions of queries and keys.
  CausalAlignment alignment = CausalAlignment::bottom_right;
  Tensor prefix_lengths;             ///< i32 [B] or [N]: with causal, the first keys that all queries see
  Index window_before = kUnlimited;  ///< the keys that a query sees before its position
  Index window_after = kUnlimited;   ///< and after it; with causal only in a prefix
  Tensor key_lengths;                ///< i32 [B] or [N]: the number of keys in use, as in a cache
  /// Key s covers key_span positions from s * key_stride on, and is seen from the last of them on. A span
  /// above 1 is for the causal mask alone, with key_lengths that count positions.
  Index key_stride = 1, key_span = 1;
  /// i32 [N + 1], with B = 1: sequence i of N packed ones is [starts[i], starts[i + 1]); key_starts
  /// undefined: as query_starts.
  Tensor query_starts, key_starts;
};

/// Changes to the scores, in this order: scale, score_function, relative_bias, an additive mask, the
/// masks, and the weighting with its sinks. The tensors have the wide type (f32 with bf16, else the
/// query's), and get gradients if they are recorded.
struct AttentionModifiers {
  ScoreFunction score_function = ScoreFunction::none;  ///< of the scaled scores
  Tensor score_parameter;  ///< [1] or [H]: of that function, such as softcap's cap
  /// [H, 2 R + 1] or [1, 2 R + 1], with R at least max(T, S) - 1: entry r + R is added to the scores of the
  /// keys that lie r after the query's position, s - p as in AttentionMasks. It must be finite.
  Tensor relative_bias;
  Tensor sinks;  ///< [H]: exp(sink) joins the sum that each row's weights are divided by
  AttentionWeighting weighting = AttentionWeighting::softmax;  ///< from changed scores to weights
};

/// The options of every kind of attention with scores.
struct AttentionOptions : AttentionMasks, AttentionModifiers {
  AttentionOptions() = default;
  /// These masks, and the defaults of all other options.
  explicit AttentionOptions(const AttentionMasks& masks) : AttentionMasks(masks) {}

  double scale = 0;        ///< of the scores; 0 for 1 / sqrt(D)
  Index block_size = 0;    ///< keys of a block; 0 to attend to all keys. See ops/attention/block_attention.h
  Index block_top_k = 1;   ///< the blocks that each query attends to, its own included
  Tensor block_scores;     ///< [B, T, G, S / block_size], of the wide type: chooses in place of mean keys
  double dropout = 0;      ///< probability, on the weights
  DropoutKey dropout_key;  ///< which of the weights are dropped
  Tensor* weights = nullptr;  ///< receives the weights [B, H, T, S] before dropout
};

/// Scaled dot-product attention in tiles: no [T, S] is ever stored, and the backward pass computes the
/// weights again. A query that may attend to nothing gives zeros, gets no gradient and passes none on. Keys,
/// values and queries that are masked for their whole sequence may hold anything, NaN included, as may the
/// gradients of such queries' outputs: they count as zero and get zero gradient. With fewer key than query
/// heads, H / G neighbouring query heads share one. Uses the composed path if the weights are requested.
/// Math:    y = dropout(w) value, w = softmax(z), z = f(scale * query key^T) + relative_bias + mask, head by
///          head; with a sink w = exp(z) / (exp(sink) + sum exp(z)), with AttentionWeighting::sigmoid
///          w = 1 / (1 + exp(-z))
/// Grad:    with dw = dropout(dy value^T), dz = w * (dw - sum(y * dy)) (sigmoid: dz = w * (1 - w) * dw) and
///          ds = f'(s) * dz: dquery = scale ds key, dkey = scale ds^T query, dvalue = dropout(w)^T dy;
///          dmask and drelative_bias are sums of dz, dscore_parameter of df/dparameter * dz,
///          dsink = -sum over rows of w_sink * sum(y * dy)
/// Shapes:  query [B, T, H, D], key [B, S, G, D], value [B, S, G, E] -> y [B, T, H, E]; H a multiple of G
/// Saves:   query, key, value, y, the logarithm of the sum of exponentials of every row of scores, and the
///          tensors of the options
/// Throws:  ShapeError if the shapes do not fit, DTypeError for a mask or modifier of the wrong type
/// Source:  Dao et al. 2022, arXiv:2205.14135; Dao 2023, arXiv:2307.08691; sinks: OpenAI 2025,
///          arXiv:2508.10925, section 2.3; sigmoid: Ramapuram et al. 2024, arXiv:2409.04431
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

/// The layout of a packed projection.
struct PackedHeads {
  Index heads = 1;        ///< H
  Index groups = 1;       ///< G
  Index key_width = 0;    ///< D
  Index value_width = 0;  ///< E
  /// Values per token: H D + G D + G E.
  Index width() const { return (heads + groups) * key_width + groups * value_width; }
};

/// Attention on one projection that holds queries, keys and values side by side and is read through strides;
/// its gradient is one tensor of the same layout.
/// Shapes:  packed [B, T, H D + G D + G E] -> y [B, T, H, E]
Tensor packed_attention(const Tensor& packed, const PackedHeads& heads, const AttentionOptions& options = {});

/// Attention in plain operations that store the weights [B, H, T, S]: the oracle, the source of the weights,
/// and the composed fallback for higher derivatives.
/// Throws:  as scaled_dot_product_attention(), and ShapeError for a block_size
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1
Tensor composed_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                          const AttentionOptions& options = {});

}  // namespace tapeformer
