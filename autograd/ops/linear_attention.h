#pragma once

#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

/// The options of linear_attention().
struct LinearAttentionOptions {
  Tensor log_decay;  ///< g <= 0 [B, T, H] or [B, T, H, D], in f32 with bf16; undefined: nothing decays
  Tensor beta;       ///< [B, T, H]; defined, it makes the update a delta rule
  Tensor state;      ///< S_0 [B, H, D, E], in f32 with bf16; undefined: zeros
  double scale = 0;  ///< of the queries; 0 for 1 / sqrt(D)
  Tensor* last_state = nullptr;  ///< receives S_T, for a call that continues these tokens
};

/// Attention without a softmax: each head keeps a state, a matrix of constant size that decays, takes in a
/// key and a value with every token, and is read by its query. With a beta it learns by the delta rule, which
/// stores the part of each value that the state does not already recall for the key. One recurrence, in
/// chunks of tokens, for gated linear attention (decays by channel), DeltaNet (beta), Gated DeltaNet (beta,
/// one decay per head) and Kimi delta attention (beta, decays by channel).
/// Math:    S_t = Diag(exp g_t) S_{t-1} + k_t u_t^T, y_t = scale S_t^T q_t; u_t = v_t, or with a beta
///          u_t = beta_t (v_t - (Diag(exp g_t) S_{t-1})^T k_t), which is
///          S_t = (I - beta_t k_t k_t^T) Diag(exp g_t) S_{t-1} + beta_t k_t v_t^T
/// Grad:    dS_t, of the state, is scale q_t dy_t^T and what comes from the token after it; then
///          dq_t = scale S_t dy_t, du_t = dS_t^T k_t, dk_t = dS_t u_t, and back through the lines above
/// Shapes:  query, key [B, T, H, D], value [B, T, H, E] -> y [B, T, H, E]
/// Saves:   the inputs, and a state every D tokens (rounded up to a multiple of 64)
/// Throws:  ShapeError if the shapes do not fit
/// Source:  Yang et al. 2024, arXiv:2312.06635 (gated linear attention), arXiv:2406.06484 (DeltaNet) and
///          arXiv:2412.06464 (Gated DeltaNet); Kimi Team 2025, arXiv:2510.26692
Tensor linear_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                        const LinearAttentionOptions& options = {});

/// Linear attention token by token in plain operations: the oracle, and the composed fallback.
Tensor composed_linear_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                 const LinearAttentionOptions& options = {});

}  // namespace tapeformer
