#pragma once

#include <tapeformer/autograd/kernels/linear_attention.h>

namespace tapeformer::kernels {

/// Tokens per chunk, which are joined to matrix products; a divisor of a segment. A token costs 3 D E
/// multiply-adds with the state for a chunk of any size, and (D + E) chunk / 2 or more with its other tokens.
/// With AVX-512, 2048 tokens and 8 heads of 64, both passes of deltanet take 41, 38 and 41 ms at 8, 16 and 32
/// tokens, those of kda 70, 69 and 105 ms.
constexpr Index kLinearAttentionChunk = 16;

/// The working memory of a head, with rows as a team's products need them.
template <class Team>
struct LinearAttentionMemory {
  using W = typename Team::Number;
  Index row_D, row_E, row_C;  ///< distances of rows of key_width, value_width and chunk numbers
  typename Team::Part qk, decay, from_start, to_end, between, beta, qk_from_start, k_to_end, k_columns, pa,
      out, error, u, state;
  typename Team::Part dout, du, dpa, diagonal, dstate, u_columns, state_columns, decayed, dlog;
  typename Team::Part dqk, dk, dk_end, ends;  ///< in place of out, du, error and u, once these are used up
  W* states = nullptr;                        ///< before each chunk of a segment
  Index near = 0, far = 0, of_states = 0;     ///< numbers of parts near and far, and of `states`

  /// Each part that still fits into `room` numbers is near. With `memory` = nullptr only sizes are computed.
  LinearAttentionMemory(const LinearAttention& n, bool backward, W* memory, Index room)
      : row_D(Team::leading(n.key_width)),
        row_E(Team::leading(n.value_width)),
        row_C(Team::leading(kLinearAttentionChunk)) {
    constexpr Index C = kLinearAttentionChunk;
    const Index D = n.key_width, E = n.value_width, row = row_D > row_E ? row_D : row_E;
    const Index both = backward ? C : 0, decays = n.decays > 0 ? C : 0, both_decays = n.decays > 0 ? both : 0;
    const auto take = [&](typename Team::Part& part, Index rows, Index of_row) {
      // Blocks of four rows are transposed as wholes.
      const Index count = (Team::kTransposes ? (rows + 3) / 4 * 4 : rows) * of_row;
      const bool is_near = near + count <= room;
      part = Team::part(memory, is_near, is_near ? near : far);
      (is_near ? near : far) += count;
    };
    take(qk, 2 * C, row_D), take(state, D, row_E), take(dstate, backward ? D : 0, row_E);
    take(qk_from_start, 2 * decays, row_D), take(out, 2 * C, row);
    take(dout, 2 * both, row_E), take(u, C, row), take(error, C, row), take(du, both, row);
    take(pa, 2 * C, row_C), take(dpa, 2 * both, row_C), take(beta, 1, row_C), take(diagonal, 1, row_C);
    take(k_to_end, decays, row_D), take(decay, decays, row_D), take(from_start, decays, row_D);
    take(to_end, decays, row_D), take(between, n.decays == 1 ? C : 0, row_C), take(dlog, both_decays, row_D);
    if (Team::kTransposes) {
      take(k_columns, D, row_C), take(u_columns, backward ? E : 0, row_C);
      take(state_columns, backward ? E : 0, row_D), take(decayed, 2 * both_decays, row_D);
    }
    dqk = out, dk = du, dk_end = error, ends = u;
    of_states = backward ? (n.segment() / C * D + (Team::kTransposes ? 3 : 0)) * row_E : 0;
    if (memory != nullptr) states = memory + near;
  }
};

}  // namespace tapeformer::kernels
