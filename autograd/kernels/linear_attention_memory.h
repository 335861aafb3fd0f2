#pragma once

#include <tapeformer/autograd/kernels/linear_attention.h>

namespace tapeformer::kernels {

/// Tokens that are joined to matrix products. Whatever it is, a token costs 3 D E multiply-adds with the
/// state; with the other tokens of its chunk (D + E) chunk / 2 or more. With AVX-512, 2048 tokens and 8 heads
/// of 64, both passes of deltanet take 41, 38 and 41 ms at 8, 16 and 32 tokens, kda's 70, 69 and 105. It
/// divides a segment.
constexpr Index kLinearAttentionChunk = 16;

/// The working memory of a head, in rows that a team's products take.
template <class W>
struct LinearAttentionMemory {
  Index row_D, row_E, row_C;  ///< distances of rows of key_width, value_width and chunk numbers
  W *qk, *decay, *from_start, *to_end, *between, *beta, *qk_from_start, *k_to_end, *k_columns, *pa, *out,
      *error, *u, *state;
  W *dout, *du, *dqk, *dk, *dk_end, *ends, *dpa, *diagonal, *dstate, *u_columns, *state_columns,
      *dstate_columns, *decayed, *dlog, *states;
  Index of_forward, of_both;  ///< numbers, for a forward pass and for a backward one

  template <class Team>
  TAPEFORMER_HOST_DEVICE LinearAttentionMemory(Team, const LinearAttention& n, W* memory)
      : row_D(Team::leading(n.key_width)),
        row_E(Team::leading(n.value_width)),
        row_C(Team::leading(kLinearAttentionChunk)) {
    constexpr Index C = kLinearAttentionChunk;
    const Index D = n.key_width, E = n.value_width;
    Index taken = 0;
    const auto take = [&](W*& part, Index rows, Index row) {
      part = memory != nullptr ? memory + taken : nullptr;
      taken += (rows + 3) / 4 * 4 * row;  // blocks of four rows are transposed as wholes
    };
    take(qk, 2 * C, row_D), take(decay, C, row_D), take(from_start, C + 1, row_D), take(to_end, C, row_D);
    take(between, C, row_C), take(beta, 1, row_C), take(qk_from_start, 2 * C, row_D);
    take(k_to_end, C, row_D), take(k_columns, D, row_C), take(pa, 2 * C, row_C);
    take(out, 2 * C, row_E), take(error, C, row_E), take(u, C, row_E), take(state, D, row_E);
    of_forward = taken;
    take(dout, 2 * C, row_E), take(du, C, row_E), take(dqk, 2 * C, row_D), take(dk, C, row_D);
    take(dk_end, C, row_D), take(ends, C, row_D);
    take(dpa, 2 * C, row_C), take(diagonal, 1, row_C), take(dstate, D, row_E), take(u_columns, E, row_C);
    take(state_columns, E, row_D), take(dstate_columns, E, row_D), take(decayed, 2 * C, row_D);
    take(dlog, C, row_D), take(states, (n.segment() / C + 1) * D, row_E);
    of_both = taken;
  }
};

}  // namespace tapeformer::kernels
