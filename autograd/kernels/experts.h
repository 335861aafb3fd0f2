#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <algorithm>
#include <cstdint>

namespace tapeformer::kernels {

/// The sizes of a choice of experts.
struct ExpertSizes {
  Index tokens = 0, experts = 0, active = 0;  ///< N, E and K, the number of each token's experts

  /// The number of choices, N K.
  TAPEFORMER_HOST_DEVICE Index choices() const { return tokens * active; }
};

/// Writes the places [K] of the largest scores of one token, from the largest on, the first of equal ones
/// first.
template <class T>
TAPEFORMER_HOST_DEVICE void choose_for_token(const ExpertSizes& sizes, Index token, const T* scores,
                                             std::int32_t* places) {
  std::int32_t* const list = places + token * sizes.active;
  for (Index expert = 0; expert < sizes.experts; ++expert) {
    const Index place = token * sizes.experts + expert;
    Index at = expert < sizes.active ? expert : sizes.active;
    for (; at > 0 && static_cast<Wide<T>>(scores[place]) > static_cast<Wide<T>>(scores[list[at - 1]]); --at)
      if (at < sizes.active) list[at] = list[at - 1];
    if (at < sizes.active) list[at] = static_cast<std::int32_t>(place);
  }
}

/// places [N, K]: those of the largest scores [N, E] of each token, n E + e. NaN may be anywhere among them.
TAPEFORMER_KERNEL(choose_experts, const ExpertSizes& sizes, const T* scores, std::int32_t* places);
/// Sorts the choices at `places` by expert, those of an expert in their order: rows [N, K] has the row of
/// each choice, tokens [N K] the token of each row; expert e has the rows from starts[e] to before
/// starts[e + 1], and the share shares[e] of all.
TAPEFORMER_KERNEL(sort_by_expert, const ExpertSizes& sizes, const std::int32_t* places, std::int32_t* rows,
                  std::int32_t* tokens, std::int32_t* starts, T* shares);

/// Sizes of products of each expert's rows.
struct ExpertProducts {
  Index rows = 0, experts = 0;  ///< M of all experts together, and E
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
