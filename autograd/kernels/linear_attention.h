#pragma once

#include <tapeformer/autograd/kernels/write.h>

namespace tapeformer::kernels {

/// query and key [batch, length, heads, key_width], value and y [batch, length, heads, value_width],
/// log_decay [batch, length, heads, decays], beta [batch, length, heads].
struct LinearAttention {
  Index batch = 0, length = 0, heads = 0, key_width = 0, value_width = 0;
  Index decays = 0;     ///< decays of a token's head: none, one, or key_width
  bool deltas = false;  ///< whether there is a beta, which makes the update a delta rule
  double scale = 1;     ///< of the queries
  /// Tokens between states that are kept for the backward pass: they take no more room than the values.
  TAPEFORMER_HOST_DEVICE Index segment() const {
    constexpr Index kMultiple = 64;
    return (key_width + kMultiple - 1) / kMultiple * kMultiple;
  }
  TAPEFORMER_HOST_DEVICE Index segments() const { return (length + segment() - 1) / segment(); }
  TAPEFORMER_HOST_DEVICE Index sequences() const { return batch * heads; }
  TAPEFORMER_HOST_DEVICE Index state_size() const { return key_width * value_width; }
};

/// `state` [batch, heads, key_width, value_width] is the state before the first token. Optional operands that
/// are missing are nullptr.
template <class T>
struct LinearAttentionOperands {
  const T *query, *key, *value;
  const Wide<T>* log_decay;
  const T* beta;
  const Wide<T>* state;
};
template <class T>
struct LinearAttentionGradients {
  Write<T> query, key, value;
  Write<Wide<T>> log_decay;
  Write<T> beta;
  Write<Wide<T>> state;
};

/// For each sequence and head S = a_t S + k_t u_t^T, y_t = scale S^T q_t, where a_t = exp(log_decay_t) and
/// u_t = v_t, or with a beta beta_t (v_t - (a_t S)^T k_t). `kept` [batch, heads, segments, key_width,
/// value_width] receives the states before each segment, unless it is nullptr; `last` the last one.
TAPEFORMER_KERNEL(linear_attention_forward, const LinearAttention& sizes, const LinearAttentionOperands<T>& x,
                  T* y, Wide<T>* kept, Wide<T>* last);

/// `dlast` is the gradient of the last state, or nullptr.
TAPEFORMER_KERNEL(linear_attention_backward, const LinearAttention& sizes,
                  const LinearAttentionOperands<T>& x, const Wide<T>* kept, const T* dy, const Wide<T>* dlast,
                  const LinearAttentionGradients<T>& to);

}  // namespace tapeformer::kernels
