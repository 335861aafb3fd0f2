#pragma once

#include <tapeformer/autograd/tensor.h>

namespace tapeformer {

/// The experts of each token, and the tokens of each expert in rows sorted by expert: embedding(x, tokens)
/// has these rows, and embedding(rows, `rows`) goes back.
struct ExpertChoice {
  Tensor places;  ///< i32 [N, K]: n E + e for each choice of a token n, from its largest score on
  Tensor rows;    ///< i32 [N, K]: the row of each choice
  Tensor tokens;  ///< i32 [N K]: the token of each row
  Tensor starts;  ///< i32 [E + 1]: expert e has the rows [starts[e], starts[e + 1])
  Tensor shares;  ///< [E], in the wide type: each expert's share of all choices
};

/// Equal groups of experts; a token chooses from a few of them.
struct ExpertGroups {
  Index all = 1, active = 1;  ///< their number, and the most from which a token chooses
  bool sums_two = false;      ///< a group has the sum of its two largest scores, else the largest one
};

/// The `active` experts with the largest scores of each token, in the groups with the largest scores, the
/// first of equal ones. Not recorded.
/// Shapes:  scores [N, E]; K = active
/// Throws:  ShapeError unless scores are a matrix, groups divide E, and those of a token have K experts
/// Source:  groups: DeepSeek-AI 2024, arXiv:2405.04434, section 2.2.2
ExpertChoice choose_experts(const Tensor& scores, Index active, const ExpertGroups& groups = {});

/// The product of each row with the matrix of its expert, with no more work than the rows need.
/// Math:    y[i] = weight[e] x[i] for the rows i of expert e
/// Grad:    dx[i] = weight[e]^T dy[i], dweight[e] = sum of dy[i] x[i]^T over the rows of e
/// Shapes:  x [M, In], weight [E, Out, In], starts i32 [E + 1], as in ExpertChoice -> y [M, Out]
/// Saves:   x, weight
/// Throws:  ShapeError if the shapes do not fit or, on a CPU, starts do not rise from 0 to M
/// Source:  Gale et al. 2022, arXiv:2211.15841 (grouped products without dropped tokens)
Tensor expert_linear(const Tensor& x, const Tensor& weight, const Tensor& starts);

}  // namespace tapeformer
