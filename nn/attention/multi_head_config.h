#pragma once

#include <tapeformer/nn/attention/cost.h>

namespace tapeformer {

// The entries of multi-head attention in the table of kinds: see AttentionKind.

/// One head of keys and values for each of queries.
void complete_multi_head(AttentionConfig& config);
/// `groups` of them, by default the greatest divisor of heads up to heads / 2.
void complete_grouped_query(AttentionConfig& config);
/// A single one.
void complete_multi_query(AttentionConfig& config);

/// With N = B T rows of queries, M = B S of keys, C' the memory's width, O the output's, and P the pairs of a
/// query and a key that it may attend to, in all batch rows and heads, cached keys included:
///   parameters   C H D + C' G (D + E) + H E O; biases H D + G (D + E) + O
///   forward      2 (N C H D + M C' G (D + E) + N H E O) + 2 P (D + E)
///   backward     twice the projections + 2 P (3 D + 2 E): scores once more, gradients of weights, values,
///                queries and keys
///   activations  N (C + H D + H E + H) + M G (D + E) values: input, projections, output of the heads, and
///                the logarithm of a sum for each of their rows; M C' for a memory; causal: 8 bytes per row
///                for the range that it sees
///   cache        G (D + E) values
/// and what the pieces add. shared_keys: no terms of C', no cache
AttentionCost multi_head_cost(const AttentionConfig& config, const AttentionCall& call);

}  // namespace tapeformer
