#pragma once

#include <tapeformer/nn/attention/attention_config.h>

namespace tapeformer {

/// What an attention layer is called with.
struct AttentionCall {
  Index batch = 1;      ///< B
  Index queries = 1;    ///< T
  Index keys = 0;       ///< S, of a memory; 0 for queries: self-attention
  Index cached = 0;     ///< tokens in the cache before: decoding, of which forward_flops alone is meant
  bool causal = false;  ///< aligned at the last query and the last key
  DType type = DType::f32;
};

/// What one call of an attention layer takes, in training unless something is cached, without masks but the
/// causal one. Gradients are taken of the parameters and of the inputs. Dropout on the weights adds nothing.
struct AttentionCost {
  Index parameters = 0;
  /// Of products only, 2 a multiply-add, as a Profile counts them. Of attention only visible pairs count,
  /// though tiles round them up. Sums, exponentials, tanh, norms and rotations are left out.
  Index forward_flops = 0, backward_flops = 0;
  Index activation_bytes = 0;       ///< kept for backward: TapeMemory's saved but for parameter bytes
  Index cache_bytes_per_token = 0;  ///< of one row of the batch
};

/// Pairs of a query and a key that it sees, of one row of the batch and one head.
/// Math:    T S; causal: sum over t of max(0, t + 1 + S - T)
Index visible_pair_count(const AttentionCall& call);

/// The cost of a layer that make_attention() makes. With N = B T rows of queries, M = B S of keys, C' the
/// memory's width, O the output's, P = B H visible pairs, cached keys included; G = H in multi-head and
/// additive attention, G = 1 in multi-query:
///   parameters   C H D + C' G (D + E) + H E O; biases H D + G (D + E) + O; additive: H D for the
///                scores, and no bias for keys
///   forward      2 (N C H D + M C' G (D + E) + N H E O) + 2 P (D + E)
///   backward     twice the projections + 2 P (3 D + 2 E): scores once more, gradients of weights, values,
///                queries and keys; additive: 2 P (4 D + 2 E), for there is the score weights' gradient too
///   activations  N (C + H D + H E + H) + M G (D + E) numbers: input, projections, output of the heads, and
///                the logarithm of a sum for each of their rows; M C' for a memory; rotary: T D of angles;
///                causal: 8 bytes a row for the range that it sees
///   cache        G (D + E) numbers
/// Throws:  Error if sizes do not fit
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 3.2; Shazeer 2019, arXiv:1911.02150; Ainslie et
///          al. 2023, arXiv:2305.13245; Bahdanau et al. 2015, arXiv:1409.0473; recomputed scores: Dao 2023,
///          arXiv:2307.08691, algorithm 2
AttentionCost attention_cost(const AttentionConfig& config, const AttentionCall& call);

/// The cost of latent attention; the automatic form is naive unless something is cached. With I the width
/// that queries come from (d'_c, or C), L = d_c, R = d_R, d = D + R, M' = M and what is cached:
///   parameters   C I (if d'_c) + I H d + C' L + C R + L H (D + E) + H E O; gains L + d'_c of the norms
///   forward      2 (N C I (if d'_c) + N I H d + M C' L + M C R + N H E O), and
///                naive: 2 M' L H (D + E) + 2 P (d + E); absorbed: 2 N H L (D + E) + 2 P 2 (L + R)
///   backward     twice all that is not P, and naive: 2 P (3 d + 2 E); absorbed: 2 P 5 (L + R)
///   activations  N C of inputs, M C' for a memory, N I (if d'_c), each normed latent once more with a number
///                for its row, 2 T R for the angles, N H for sums, and
///                naive: M L + N H (d + E) + M H (d + E); absorbed: M (L + R) + 2 N H (L + R) + N H (D + E),
///                and N H L more if R; causal: 8 bytes a row
///   cache        L + R numbers, against 2 H D of multi-head attention
/// Throws:  Error if sizes do not fit
/// Source:  DeepSeek-AI 2024, arXiv:2405.04434, section 2.1.4, table 1
AttentionCost attention_cost(const LatentConfig& config, const AttentionCall& call);

}  // namespace tapeformer
