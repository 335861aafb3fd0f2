#pragma once

#include <tapeformer/autograd/kernels/philox.h>
#include <tapeformer/autograd/kernels/score_functions.h>
#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// The strides of queries, keys or values.
struct HeadStrides {
  Index batch = 0, row = 0, head = 0;
  /// The offset of element (b, r, h, 0).
  TAPEFORMER_HOST_DEVICE Index at(Index b, Index r, Index h) const { return b * batch + r * row + h * head; }
};

/// Sizes, strides and masks of one attention. Pointers that are nullptr leave nothing out.
struct AttentionShape {
  Index batch = 0, queries = 0, keys = 0;  // B, T, S
  Index heads = 1, groups = 1;             // H, G: head h reads key head h / (H / G)
  Index key_width = 0, value_width = 0;    // D, E
  HeadStrides query, key, value;           // their gradients have the same
  double scale = 1;
  /// Query (b, t) sees keys [key_from[b T + t], key_to[b T + t]) at most. A row with an empty range counts as
  /// zero, even if it holds NaN, gives zero output and gets zero gradient.
  const std::int32_t *key_from = nullptr, *key_to = nullptr;
  const bool* key_mask = nullptr;  // [B, S]; a masked key and value count as zero
  const bool* mask = nullptr;      // read at b * [0] + h * [1] + t * [2] + s * [3]
  Index mask_strides[4] = {0, 0, 0, 0};
  Index bias_strides[4] = {0, 0, 0, 0};  // of the additive mask
  ScoreFunction function = ScoreFunction::none;
  AttentionWeighting weighting = AttentionWeighting::softmax;
  Index parameter_stride = 0;  // between heads: 1, or 0 for one parameter
  Index reach = 0;             // R of the relative bias
  Index relative_stride = 0;   // between heads: 2 R + 1, or 0
  /// [B, T], with a relative bias: key s lies s - positions[b T + t] after query (b, t). That is within +-R
  /// for the keys that the query sees, and may be anything for others.
  const std::int32_t* positions = nullptr;
  bool drops = false;  // element ((b H + h) T + t) S + s of dropout.h's mask
  PhiloxStream dropout;
  std::uint32_t dropped = 0;
  double kept_scale = 1;  // 1 / (1 - probability)
  bool is_part = false;   // backward gets y and log_sum of rows that see more keys than these
};

/// The strides of y and its gradient, [B, T, H, E].
inline HeadStrides output_strides(const AttentionShape& s) {
  return {s.queries * s.heads * s.value_width, s.heads * s.value_width, s.value_width};
}

/// The inputs of one attention, read through the strides of its shape.
template <class T>
struct AttentionOperands {
  const T *query, *key, *value;
  const T* weight = nullptr;      // [H, D]: makes the scores weight_h . tanh(query + key), without a scale
  const Wide<T>* bias = nullptr;  // the additive mask; its minus infinities mask pairs
  const Wide<T>* relative = nullptr;   // [H, 2 R + 1] or [1, 2 R + 1]: added to the function of the scores
  const Wide<T>* parameter = nullptr;  // of that function, [H] or [1]
  const Wide<T>* sinks = nullptr;      // [H]: exp(sink) joins each row's sum of exponentials
};

/// Every element of the gradients that are needed is written.
template <class T>
struct AttentionGradients {
  Write<T> dquery, dkey, dvalue;
  Write<Wide<T>> dweight = {};
};

/// In the layouts of the operands of these names. Every element of those that are needed is written; elements
/// of masked pairs alone get zero.
template <class T>
struct AttentionScoreGradients {
  Write<Wide<T>> dbias = {}, drelative = {}, dparameter = {}, dsinks = {};
};

/// y [B, T, H, E], log_sum [B, H, T]: the logarithm of each row's sum of exponentials, the sink's included,
/// or 0 for sigmoid; minus infinity for rows that see nothing, with or without a sink.
TAPEFORMER_KERNEL(attention_forward, const AttentionShape& shape, const AttentionOperands<T>& x, T* y,
                  Wide<T>* log_sum);

/// From y, log_sum and dy [B, T, H, E].
TAPEFORMER_KERNEL(attention_backward, const AttentionShape& shape, const AttentionOperands<T>& x, const T* y,
                  const Wide<T>* log_sum, const T* dy, const AttentionGradients<T>& to);

/// The gradients of what is added to the scores, and of parameters; computes scores and weights again.
TAPEFORMER_KERNEL(attention_score_gradients, const AttentionShape& shape, const AttentionOperands<T>& x,
                  const T* y, const Wide<T>* log_sum, const T* dy, const AttentionScoreGradients<T>& to);

}  // namespace tapeformer::kernels
