#pragma once

#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/tests/reference/support.h>

#include <map>

namespace tapeformer {

/// The config with sizes of native sparse attention, if it is that, that a few tokens exceed. Chosen are the
/// own block and the first alone, whatever rounding does.
inline AttentionConfig with_small_blocks(AttentionConfig config) {
  if (!attention_kind(config.kind).uses("nsa_span")) return config;
  config.own = {{"nsa_span", 4}, {"nsa_stride", 2}, {"nsa_block", 4}, {"nsa_top_k", 2}, {"nsa_window", 5}};
  return config;
}

/// The output of native sparse attention by its formulas, over all pairs.
struct NativeSparseFormula {
  Tensor y;    ///< [B, T, O]
  double gap;  ///< the smallest distance of the importance of a chosen block from one left out
};

/// Native sparse attention of x f64 [B, T, C], with the parameters of a layer by name.
NativeSparseFormula native_sparse_formula(const AttentionConfig& config,
                                          const std::map<std::string, Tensor>& parameters, const Tensor& x);

}  // namespace tapeformer
