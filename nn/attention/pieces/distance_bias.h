#pragma once

#include <tapeformer/autograd/config/names.h>
#include <tapeformer/nn/attention/pieces/piece.h>

namespace tapeformer {

/// A bias of the scores by the distance of query and key. alibi: a fixed slope for each head times the
/// distance; buckets: T5's learned bias for each head and bucket of distances.
enum class RelativeBias { none, alibi, buckets };
template <>
inline constexpr EnumNames kNames<RelativeBias>{"relative_bias", {"none", "alibi", "buckets"}};

/// The bias that `relative_bias` chooses. Cross-attention has none, as it has no distances.
/// Math:    for a key r after the query, alibi: -slope_h |r|; buckets: table[bucket(r), h]
/// Initial: table normal with standard deviation 0.02
/// Source:  alibi: Press et al. 2022, arXiv:2108.12409; buckets: Raffel et al. 2020, arXiv:1910.10683
struct DistanceBias {
  RelativeBias relative_bias = RelativeBias::none;  ///< which bias, if any
  Index bias_buckets = 32;                          ///< of RelativeBias::buckets, in both directions
  Index bias_distance = 128;                        ///< keys at this distance and beyond share a bucket
  void describe(const FieldVisitor& in_models, const FieldVisitor& in_layers);
  static void complete(AttentionConfig& config);
  static MadePiece make(const AttentionConfig& config, Generator& random);
  static void add_cost(const AttentionConfig& config, CostSum& sum);
  static PieceCases cases();
};

}  // namespace tapeformer
