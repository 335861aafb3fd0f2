#pragma once

#include <tapeformer/autograd/config/names.h>
#include <tapeformer/nn/attention/pieces/piece.h>

namespace tapeformer {

/// Norms of queries and keys, before rotary positions. rms: RMS norms of each head, with one gain for all
/// heads of queries and one for those of keys. joint: RMS norms over all heads at once, with a gain for each
/// component. l2: heads of length 1, so that scores are cosines times a learned factor per query head,
/// sqrt(D) at first. plain: RMS norms of each head without gains.
enum class QkNorm { none, rms, joint, l2, plain };
template <>
inline constexpr EnumNames kNames<QkNorm>{"qk_norm", {"none", "rms", "joint", "l2", "plain"}};

/// The norms of queries and keys that `qk_norm` chooses. Caches hold normed keys.
/// Math:    rms: each head is rms_norm(head) * weight, of queries or of keys; joint: rms_norm(all heads of a
///          token) * weight; l2: q_h = weight_h q_h / |q_h| and k_g = k_g / |k_g|, with scores q_h k_g^T,
///          or these times score_scale; plain: rms_norm(head)
/// Initial: gains of 1; l2: sqrt(D), so that the first scores are as large as with rms
/// Source:  l2: Henry et al. 2020, arXiv:2010.04245, here with a factor for each head; rms: Qwen3,
///          arXiv:2505.09388; joint: OLMo 2, arXiv:2501.00656
struct HeadNorms {
  QkNorm qk_norm = QkNorm::none;  ///< which norms, if any
  double qk_norm_epsilon = 1e-6;  ///< added to the mean square before its root
  void describe(const FieldVisitor& in_models, const FieldVisitor& in_layers);
  static void complete(AttentionConfig& /*config*/) {}
  static MadePiece make(const AttentionConfig& config, Generator& random);
  static void add_cost(const AttentionConfig& config, CostSum& sum);
  static PieceCases cases();
};

}  // namespace tapeformer
