#pragma once

#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/module.h>

namespace tapeformer {

/// What AttentionConfig's softcap, relative_bias, sinks and weighting make of a layer's scores.
/// Math:    s = scale q k^T; with a softcap c tanh(s / c); then a bias where a key lies r after the query,
///          alibi: -slope_h |r|, buckets: table[bucket(r), h], with sigmoid weights b_h; then softmax, with
///          exp(sink_h) in its sum, or sigmoid
/// Initial: table normal with standard deviation 0.02; sinks 0; b_h = -log(sigmoid_keys)
/// Source:  softcap: Gemma Team 2024, arXiv:2408.00118; alibi: Press et al. 2022, arXiv:2108.12409; buckets:
///          Raffel et al. 2020, arXiv:1910.10683; sinks: OpenAI 2025, arXiv:2508.10925; sigmoid: Ramapuram
///          et al. 2024, arXiv:2409.04431
class ScoreModifiers : public Module {
 public:
  /// For a resolved config.
  ScoreModifiers(const AttentionConfig& config, Generator& random);

  /// Sets the modifiers of `options`. `type` is that of queries and keys, the others are T and S.
  void add_to(AttentionOptions& options, DType type, Index queries, Index keys) const;
  void visit(ParameterVisitor& visitor) override;

  /// The modifiers' part of a kind's complete().
  static void complete(AttentionConfig& config);
  /// Their part of a layer's cost.
  static void add_cost(const AttentionConfig& config, const AttentionCall& call, CostSum& sum);

 private:
  Tensor relative_bias(DType type, Index reach, bool bidirectional) const;

  AttentionConfig config_;
  Tensor softcap_, slopes_;  // [1] and [H], or undefined
  Tensor earlier_ids_,
      both_ids_;  // distance_buckets() where keys are earlier, and in both directions; likewise
  Parameter table_, sinks_, sigmoid_shift_;  // [H], but table_ [buckets, H]; or undefined
};

}  // namespace tapeformer
