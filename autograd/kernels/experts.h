#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <cstdint>

namespace tapeformer::kernels {

/// The sizes of a choice of experts.
struct ExpertSizes {
  Index tokens = 0, experts = 0, active = 0;  ///< N, E, and K experts per token
  Index groups = 1, active_groups = 1;  ///< equal parts of the experts, and the most that a token chooses in
  bool sums_two = false;                ///< a group has the sum of its two largest scores, else the largest

  /// The number of choices, N K.
  TAPEFORMER_HOST_DEVICE Index choices() const { return tokens * active; }
};

/// The score of a group of experts, from the scores of one token.
template <class T>
TAPEFORMER_HOST_DEVICE Wide<T> score_of_group(const ExpertSizes& sizes, Index group, const T* scores) {
  const Index width = sizes.experts / sizes.groups;
  const T* const own = scores + group * width;
  Wide<T> first = static_cast<Wide<T>>(own[0]), second = first;
  for (Index i = 1; i < width; ++i) {
    const Wide<T> score = static_cast<Wide<T>>(own[i]);
    if (i == 1 || score > second) second = score;
    if (second > first) {
      const Wide<T> larger = second;
      second = first, first = larger;
    }
  }
  return sizes.sums_two ? first + second : first;
}

/// True if fewer than `active_groups` groups have a larger score, or an equal one and come first.
template <class T>
TAPEFORMER_HOST_DEVICE bool is_active_group(const ExpertSizes& sizes, Index group, const T* scores) {
  if (sizes.active_groups == sizes.groups) return true;
  const Wide<T> own = score_of_group(sizes, group, scores);
  Index before = 0;
  for (Index other = 0; other < sizes.groups; ++other) {
    const Wide<T> score = score_of_group(sizes, other, scores);
    if (score > own || (score == own && other < group)) ++before;
  }
  return before < sizes.active_groups;
}

/// Writes the places [K] of the largest scores of one token in its active groups, from the largest on, the
/// first of equal ones first.
template <class T>
TAPEFORMER_HOST_DEVICE void choose_for_token(const ExpertSizes& sizes, Index token, const T* scores,
                                             std::int32_t* places) {
  std::int32_t* const list = places + token * sizes.active;
  const Index width = sizes.experts / sizes.groups;
  Index seen = 0;
  for (Index expert = 0; expert < sizes.experts; ++expert) {
    if (expert % width == 0 && !is_active_group(sizes, expert / width, scores + token * sizes.experts)) {
      expert += width - 1;
      continue;
    }
    const Index place = token * sizes.experts + expert;
    Index at = seen < sizes.active ? seen++ : sizes.active;
    for (; at > 0 && static_cast<Wide<T>>(scores[place]) > static_cast<Wide<T>>(scores[list[at - 1]]); --at)
      if (at < sizes.active) list[at] = list[at - 1];
    if (at < sizes.active) list[at] = static_cast<std::int32_t>(place);
  }
}

/// places [N, K]: the places n E + e of the largest scores [N, E] of each token. NaN may rank anywhere.
TAPEFORMER_KERNEL(choose_experts, const ExpertSizes& sizes, const T* scores, std::int32_t* places);
/// Sorts the choices at `places` by expert, keeping the order of each expert's: rows [N, K] gets the row of
/// each choice, tokens [N K] the token of each row; expert e has the rows [starts[e], starts[e + 1]), and the
/// share shares[e] of all.
TAPEFORMER_KERNEL(sort_by_expert, const ExpertSizes& sizes, const std::int32_t* places, std::int32_t* rows,
                  std::int32_t* tokens, std::int32_t* starts, T* shares);

/// Sizes of products of each expert's rows.
struct ExpertProducts {
  Index rows = 0, experts = 0;  ///< M, the rows of all experts together, and E
  Index n = 0, k = 0;
  bool transposed = false;  ///< matrices are stored [n, k], otherwise [k, n]
};

/// y [M, n]: the product of each row of x [M, k] with its expert's matrix of w [E, ...].
TAPEFORMER_KERNEL(multiply_by_expert, const ExpertProducts& sizes, const std::int32_t* starts, const T* x,
                  const T* w, Write<T> y);
/// c [E, k, n]: a^T b of each expert's rows of a [M, k] and b [M, n]; zeros for an expert without rows.
TAPEFORMER_KERNEL(outer_by_expert, const ExpertProducts& sizes, const std::int32_t* starts, const T* a,
                  const T* b, Write<Wide<T>> c);

}  // namespace tapeformer::kernels
