#pragma once

#include <tapeformer/nn/attention/pieces/piece.h>

namespace tapeformer {

/// Mixture of block attention: each query of self-attention reads its own block of keys and the few others
/// whose mean key fits it best.
/// Math:    softmax(q k^T / sqrt(D)) v over the keys of K blocks; see ops/attention/block_attention.h
/// Source:  Lu et al. 2025, arXiv:2502.13189
struct BlockMixture {
  Index moba_block = 0;  ///< keys of a block; 0 for attention to all keys
  Index moba_top_k = 3;  ///< K: the blocks of each query, its own included
  void describe(const FieldVisitor& in_models, const FieldVisitor& in_layers);
  static void complete(AttentionConfig& config);
  static MadePiece make(const AttentionConfig& config, Generator& random);
  static void add_cost(const AttentionConfig& config, CostSum& sum);
  static PieceCases cases();
};

}  // namespace tapeformer
