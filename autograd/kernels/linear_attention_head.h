#pragma once

#include <tapeformer/autograd/kernels/linear_attention_memory.h>

// Linear attention of one head of one sequence, in chunks: the same lines for the CPU, where a team is one
// thread with vectors, and for GPUs, where it is a block.
namespace tapeformer::kernels {

/// Before a function that a team runs.
#if defined(__CUDACC__)
#define TAPEFORMER_TEAM __device__
#else
#define TAPEFORMER_TEAM
#endif

/// With f_t = a_1 ... a_t and b_t = a_(t+1) ... a_C, the products of decays from a chunk's start and to its
/// end, S the state before the chunk, and d_tj = a_(j+1) ... a_t, the product between two tokens (nothing is
/// divided, and nothing exceeds 1):
///   P_tj = sum(q_t * d_tj * k_j), j <= t;  A_tj = sum(k_t * d_tj * k_j), j < t
///   N = V - (f * K) S - A U,  U = beta N  (without a beta U = V)
///   Y = (f * Q) S + P U,  S' = f_C S + (b * K)^T U
/// Backward, from dY and dS':
///   dU = P^T dY + (b * K) dS',  H = dU - A^T W,  W = beta H = dV,  dbeta = sum(N * H)
///   dP = dY U^T,  dA = -W U^T,  dS = f_C dS' + (f * Q)^T dY - (f * K)^T W
///   dq_t = f_t S dy_t + sum_j dP_tj d_tj k_j,  and dk_t as the row t of A in the same way;
///   dk_j = b_j dS' u_j + sum_t d_tj (dP_tj q_t + dA_tj k_t) as a column
///   dlog a_t = the sum from t on of q_i dq_i + k_i (dk_i as a row - dk_i as a column of P and A), and
///              f_C S dS' + the sum before t of k_j b_j dS' u_j
/// Source:  Yang et al. 2024, arXiv:2406.06484, section 3 (chunks of the delta rule); Yang et al. 2024,
///          arXiv:2312.06635, section 4 and appendix C (decays by channel and their gradient)
template <class Team, class T>
class LinearAttentionHead {
  using W = Wide<T>;
  static constexpr Index C = kLinearAttentionChunk;

 public:
  /// The head-th of all sequences' heads; `memory` is its own.
  TAPEFORMER_TEAM LinearAttentionHead(const LinearAttention& sizes, const LinearAttentionOperands<T>& x,
                                      Index head, W* memory)
      : n_(sizes),
        x_(x),
        m_(Team(), sizes, memory),
        D(sizes.key_width),
        E(sizes.value_width),
        head_(head),
        first_(head / sizes.heads * sizes.length * sizes.heads + head % sizes.heads),
        by_channel_(sizes.decays > 1) {}

  TAPEFORMER_TEAM void forward(T* y, W* kept, W* last) {
    load_state(x_.state != nullptr ? x_.state + head_ * D * E : nullptr, m_.state);
    for (Index from = 0; from < n_.length; from += C) {
      if (kept != nullptr && from % n_.segment() == 0)
        store_state(m_.state, kept + (head_ * n_.segments() + from / n_.segment()) * D * E);
      load(from, min(C, n_.length - from), true);
      find_values(m_.state, true);
      team_.product(c_, E, c_, m_.pa, m_.row_C, 1, m_.u, m_.row_E, m_.out, m_.row_E, true);
      team_.grid(c_, E,
                 [&](Index i, Index j) { y[token(i) * E + j] = static_cast<T>(m_.out[i * m_.row_E + j]); });
      advance(m_.state, m_.state);
    }
    if (last != nullptr) store_state(m_.state, last + head_ * D * E);
  }

  TAPEFORMER_TEAM void backward(const W* kept, const T* dy, const W* dlast,
                                const LinearAttentionGradients<T>& to) {
    load_state(dlast != nullptr ? dlast + head_ * D * E : nullptr, m_.dstate);
    const Index segment = n_.segment(), state = D * m_.row_E;
    for (Index part = n_.segments() - 1; part >= 0; --part) {
      const Index begin = part * segment, end = min(n_.length, begin + segment);
      load_state(kept + (head_ * n_.segments() + part) * D * E, m_.states);
      for (Index from = begin; from < end; from += C) {
        W* const before = m_.states + (from - begin) / C * state;
        load(from, min(C, end - from), false);
        find_values(before, false);
        advance(before, before + state);
      }
      for (Index from = begin + (end - begin - 1) / C * C; from >= begin; from -= C) {
        load(from, min(C, end - from), true);
        chunk_backward(m_.states + (from - begin) / C * state, dy, to);
      }
    }
    if (!to.state) return;
    team_.grid(D, E,
               [&](Index i, Index j) { to.state.put((head_ * D + i) * E + j, m_.dstate[i * m_.row_E + j]); });
  }

 private:
  static TAPEFORMER_TEAM Index min(Index a, Index b) { return a < b ? a : b; }
  /// The place of the chunk's i-th token among the heads of all tokens.
  TAPEFORMER_TEAM Index token(Index i) const { return first_ + (from_ + i) * n_.heads; }
  /// The first of the rows of queries and keys, or of those of keys alone unless `queries`.
  TAPEFORMER_TEAM Index first_row(bool queries) const { return queries ? 0 : c_; }
  TAPEFORMER_TEAM Index end_row() const { return n_.deltas ? 2 * c_ : c_; }

  /// Zeros if there is none.
  TAPEFORMER_TEAM void load_state(const W* from, W* to) {
    team_.grid(D, E,
               [&](Index i, Index j) { to[i * m_.row_E + j] = from != nullptr ? from[i * E + j] : W(0); });
  }
  TAPEFORMER_TEAM void store_state(const W* from, W* to) {
    team_.grid(D, E, [&](Index i, Index j) { to[i * E + j] = from[i * m_.row_E + j]; });
  }

  /// The next `count` tokens, and what follows from their keys, decays and (unless not asked for) queries.
  TAPEFORMER_TEAM void load(Index from, Index count, bool queries) {
    from_ = from, c_ = count;
    k_ = m_.qk + c_ * m_.row_D;
    const W scale = static_cast<W>(n_.scale);
    team_.grid(c_, D, [&](Index i, Index j) {
      if (queries) m_.qk[i * m_.row_D + j] = scale * static_cast<W>(x_.query[token(i) * D + j]);
      k_[i * m_.row_D + j] = static_cast<W>(x_.key[token(i) * D + j]);
    });
    if (n_.deltas) team_.grid(1, c_, [&](Index, Index i) { m_.beta[i] = static_cast<W>(x_.beta[token(i)]); });
    qk_from_start_ = m_.qk, k_to_end_ = k_;
    if (n_.decays > 0) {
      load_decays();
      qk_from_start_ = m_.qk_from_start, k_to_end_ = m_.k_to_end;
      team_.grid(c_, D, [&](Index i, Index j) {
        const Index at = i * m_.row_D + j;
        const W decay = m_.from_start[at + m_.row_D];
        if (queries) m_.qk_from_start[at] = decay * m_.qk[at];
        m_.qk_from_start[c_ * m_.row_D + at] = decay * k_[at];
        m_.k_to_end[at] = m_.to_end[at] * k_[at];
      });
    }
    find_products(queries);
  }

  /// from_start[0] = 1, from_start[t + 1] = f_t, to_end[t] = b_t; between d_tj where all channels share it.
  TAPEFORMER_TEAM void load_decays() {
    const Index row = m_.row_D;
    for (Index i = 0; i < c_; ++i)
      team_.exponentials(n_.decays, x_.log_decay + token(i) * n_.decays, m_.decay + i * row);
    if (!by_channel_) {
      team_.grid(c_, D - 1, [&](Index i, Index j) { m_.decay[i * row + j + 1] = m_.decay[i * row]; });
      for (Index i = 0; i < c_; ++i) {
        team_.grid(1, i + 1, [&](Index, Index j) {
          m_.between[i * m_.row_C + j] =
              i == j ? W(1) : m_.between[(i - 1) * m_.row_C + j] * m_.decay[i * row];
        });
      }
    }
    team_.grid(1, D, [&](Index, Index j) { m_.from_start[j] = m_.to_end[(c_ - 1) * row + j] = W(1); });
    for (Index i = 0; i < c_; ++i) {
      team_.grid(1, D, [&](Index, Index j) {
        m_.from_start[(i + 1) * row + j] = m_.from_start[i * row + j] * m_.decay[i * row + j];
        const Index end = (c_ - 1 - i) * row + j;
        if (i < c_ - 1) m_.to_end[end - row] = m_.to_end[end] * m_.decay[end];
      });
    }
  }

  /// P in the first rows of pa, -A in those after them.
  TAPEFORMER_TEAM void find_products(bool queries) {
    const Index first = first_row(queries), rows = end_row() - first, row = m_.row_C;
    if (rows <= 0) return;
    W *const pa = m_.pa + first * row, *const qk = m_.qk + first * m_.row_D;
    if (by_channel_) {
      team_.grid(D, C, [&](Index i, Index j) { m_.k_columns[i * row + j] = W(0); });
      for (Index t = 0; t < c_; ++t) {
        team_.grid(D, C, [&](Index i, Index j) {
          W& k = m_.k_columns[i * row + j];
          k = j == t ? k_[t * m_.row_D + i] : k * m_.decay[t * m_.row_D + i];
        });
        team_.product(rows / c_, C, D, qk + t * m_.row_D, c_ * m_.row_D, 1, m_.k_columns, row, pa + t * row,
                      c_ * row, false);
      }
    } else {
      team_.transpose(c_, D, k_, m_.row_D, m_.k_columns, row);
      team_.product(rows, c_, D, qk, m_.row_D, 1, m_.k_columns, row, pa, row, false);
    }
    keep_visible(first, m_.pa, W(-1));
  }

  /// Multiplies pairs of tokens by shared decays, and rows of keys by `sign`. Zeros where
  /// a column is not before its row, or for queries after it.
  TAPEFORMER_TEAM void keep_visible(Index first, W* pairs, W sign) {
    const bool decays = n_.decays > 0 && !by_channel_;
    team_.grid(end_row() - first, c_, [&](Index i, Index j) {
      const bool is_query = first + i < c_;
      const Index t = is_query ? first + i : first + i - c_;
      W& pair = pairs[(first + i) * m_.row_C + j];
      const W factor = decays && j <= t ? m_.between[t * m_.row_C + j] : W(1);
      pair = j < t || (j == t && is_query) ? (is_query ? pair : sign * pair) * factor : W(0);
    });
  }

  /// U, N, and with `queries` (f * Q) S in out.
  TAPEFORMER_TEAM void find_values(const W* state, bool queries) {
    const Index first = first_row(queries), rows = end_row() - first, row = m_.row_E;
    if (rows > 0) {
      team_.product(rows, E, D, qk_from_start_ + first * m_.row_D, m_.row_D, 1, state, row,
                    m_.out + first * row, row, false);
    }
    W* const to = n_.deltas ? m_.error : m_.u;
    team_.grid(c_, E, [&](Index i, Index j) {
      const W value = static_cast<W>(x_.value[token(i) * E + j]);
      to[i * row + j] = n_.deltas ? value - m_.out[(c_ + i) * row + j] : value;
    });
    if (!n_.deltas) return;
    for (Index t = 0; t < c_; ++t) {
      if (t > 0)
        team_.product(1, E, t, m_.pa + (c_ + t) * m_.row_C, 0, 1, m_.u, row, m_.error + t * row, 0, true);
      team_.grid(1, E, [&](Index, Index j) { m_.u[t * row + j] = m_.beta[t] * m_.error[t * row + j]; });
    }
  }

  /// The state after the chunk.
  TAPEFORMER_TEAM void advance(const W* before, W* after) {
    decay_state(before, after);
    team_.product(D, E, c_, k_to_end_, 1, m_.row_D, m_.u, m_.row_E, after, m_.row_E, true);
  }
  TAPEFORMER_TEAM void decay_state(const W* before, W* after) {
    if (n_.decays == 0 && before == after) return;
    const W* const decay = m_.from_start + c_ * m_.row_D;
    team_.grid(D, E, [&](Index i, Index j) {
      const Index at = i * m_.row_E + j;
      after[at] = n_.decays > 0 ? decay[i] * before[at] : before[at];
    });
  }

  /// dstate, the gradient of the state after the chunk, becomes that of `state`, which is before it, and is
  /// followed by the one after it.
  TAPEFORMER_TEAM void chunk_backward(const W* state, const T* dy, const LinearAttentionGradients<T>& to) {
    const Index row_D = m_.row_D, row_E = m_.row_E, row_C = m_.row_C, rows = end_row();
    find_values(state, false);
    team_.grid(c_, E,
               [&](Index i, Index j) { m_.dout[i * row_E + j] = static_cast<W>(dy[token(i) * E + j]); });
    team_.product(c_, E, c_, m_.pa, 1, row_C, m_.dout, row_E, m_.du, row_E, false);
    team_.product(c_, E, D, k_to_end_, row_D, 1, m_.dstate, row_E, m_.du, row_E, true);
    if (n_.deltas) correct_values(to);
    if (to.value) {
      team_.grid(c_, E, [&](Index i, Index j) {
        const W value = m_.du[i * row_E + j];
        to.value.put(token(i) * E + j, n_.deltas ? m_.beta[i] * value : value);
      });
    }
    // dP and dA, of which no gradient crosses the diagonal's decay, which is 1.
    team_.transpose(c_, E, m_.u, row_E, m_.u_columns, row_C);
    team_.product(rows, c_, E, m_.dout, row_E, 1, m_.u_columns, row_C, m_.dpa, row_C, false);
    keep_visible(0, m_.dpa, W(1));
    team_.grid(1, c_, [&](Index, Index i) {
      m_.diagonal[i] = m_.dpa[i * row_C + i];
      m_.dpa[i * row_C + i] = W(0);
    });
    // The part from the states before and after.
    team_.transpose(D, E, state, row_E, m_.state_columns, row_D);
    team_.transpose(D, E, m_.dstate, row_E, m_.dstate_columns, row_D);
    team_.product(rows, D, E, m_.dout, row_E, 1, m_.state_columns, row_D, m_.dqk, row_D, false);
    team_.product(c_, D, E, m_.u, row_E, 1, m_.dstate_columns, row_D, m_.dk_end, row_D, false);
    if (n_.decays > 0) {
      team_.grid(c_, D, [&](Index i, Index j) {
        const Index at = i * row_D + j;
        const W decay = m_.from_start[at + row_D];
        m_.dqk[at] *= decay;
        if (n_.deltas) m_.dqk[c_ * row_D + at] *= decay;
        m_.dk_end[at] *= m_.to_end[at];
      });
      end_decay(state);
    }
    by_channel_ ? share_by_channel() : share();
    store_keys(to);
    decay_state(m_.dstate, m_.dstate);
    team_.product(D, E, rows, qk_from_start_, 1, row_D, m_.dout, row_E, m_.dstate, row_E, true);
  }

  /// H in place of dU, and -W in the rows of keys of dout.
  TAPEFORMER_TEAM void correct_values(const LinearAttentionGradients<T>& to) {
    const Index row = m_.row_E;
    for (Index t = c_ - 1; t >= 0; --t) {
      W *const h = m_.du + t * row, *const w = m_.dout + (c_ + t) * row;
      const Index later = c_ - 1 - t;
      if (later > 0) {  // -A^T W; A and W are stored negated, so h is negated around it
        team_.grid(1, E, [&](Index, Index j) { h[j] = -h[j]; });
        team_.product(1, E, later, m_.pa + (c_ + t + 1) * m_.row_C + t, 0, m_.row_C, w + row, row, h, 0,
                      true);
        team_.grid(1, E, [&](Index, Index j) { h[j] = -h[j]; });
      }
      team_.grid(1, E, [&](Index, Index j) { w[j] = -m_.beta[t] * h[j]; });
    }
    if (!to.beta) return;
    team_.grid(c_, 1, [&](Index i, Index) {
      to.beta.put(token(i),
                  Team::sum(E, [&](Index j) { return m_.error[i * row + j] * m_.du[i * row + j]; }));
    });
  }

  /// What the state after the chunk adds to dlog: of the state before, and of the keys before each token.
  TAPEFORMER_TEAM void end_decay(const W* before) {
    const Index row = m_.row_D;
    team_.grid(1, D, [&](Index, Index j) {
      const W* const decay = m_.from_start + c_ * row;
      m_.dlog[j] = decay[j] * Team::sum(E, [&](Index e) {
                     return before[j * m_.row_E + e] * m_.dstate[j * m_.row_E + e];
                   });
    });
    for (Index i = 1; i < c_; ++i) {
      team_.grid(1, D, [&](Index, Index j) {
        const Index at = i * row + j;
        m_.dlog[at] = m_.dlog[at - row] + k_[at - row] * m_.dk_end[at - row];
      });
    }
  }

  /// The sums over pairs of tokens, where all channels share their decays.
  TAPEFORMER_TEAM void share() {
    const Index rows = end_row();
    team_.product(rows, D, c_, m_.dpa, m_.row_C, 1, k_, m_.row_D, m_.dqk, m_.row_D, true);
    team_.product(c_, D, rows, m_.dpa, 1, m_.row_C, m_.qk, m_.row_D, m_.dk, m_.row_D, false);
  }

  /// As share(), with keys that decay as a query moves on, and queries that decay as a key moves back.
  TAPEFORMER_TEAM void share_by_channel() {
    const Index row_D = m_.row_D, row_C = m_.row_C, kinds = n_.deltas ? 2 : 1;
    team_.grid(kinds * c_, D, [&](Index i, Index j) { m_.decayed[i * row_D + j] = k_[i % c_ * row_D + j]; });
    for (Index t = 1; t < c_; ++t) {
      team_.grid(t, D, [&](Index i, Index j) { m_.decayed[i * row_D + j] *= m_.decay[t * row_D + j]; });
      team_.product(kinds, D, t, m_.dpa + t * row_C, c_ * row_C, 1, m_.decayed, row_D, m_.dqk + t * row_D,
                    c_ * row_D, true);
    }
    team_.grid(kinds * c_, D, [&](Index i, Index j) { m_.decayed[i * row_D + j] = m_.qk[i * row_D + j]; });
    team_.grid(c_, D, [&](Index i, Index j) { m_.dk[i * row_D + j] = W(0); });
    for (Index t = c_ - 2; t >= 0; --t) {
      const Index later = c_ - 1 - t;
      for (Index kind = 0; kind < kinds; ++kind) {
        const Index first = kind * c_ + t + 1;
        team_.grid(later, D, [&](Index i, Index j) {
          m_.decayed[(first + i) * row_D + j] *= m_.decay[(t + 1) * row_D + j];
        });
        team_.product(1, D, later, m_.dpa + first * row_C + t, 0, row_C, m_.decayed + first * row_D, row_D,
                      m_.dk + t * row_D, 0, true);
      }
    }
  }

  /// The gradients of queries, keys and decays.
  TAPEFORMER_TEAM void store_keys(const LinearAttentionGradients<T>& to) {
    const Index row = m_.row_D;
    if (to.log_decay && n_.decays > 0) {
      for (Index i = c_ - 1; i >= 0; --i) {
        team_.grid(1, D, [&](Index, Index j) {
          const Index at = i * row + j;
          W sum = m_.qk[at] * m_.dqk[at] - k_[at] * m_.dk[at];
          if (n_.deltas) sum += k_[at] * m_.dqk[c_ * row + at];
          m_.ends[at] = i == c_ - 1 ? sum : sum + m_.ends[at + row];
          m_.dlog[at] += m_.ends[at];
        });
      }
      team_.grid(c_, n_.decays, [&](Index i, Index j) {
        const W* const dlog = m_.dlog + i * row;
        to.log_decay.put(token(i) * n_.decays + j,
                         by_channel_ ? dlog[j] : Team::sum(D, [&](Index d) { return dlog[d]; }));
      });
    }
    const W scale = static_cast<W>(n_.scale);
    team_.grid(c_, D, [&](Index i, Index j) {
      const Index at = i * row + j;
      if (to.query) to.query.put(token(i) * D + j, scale * (m_.dqk[at] + m_.diagonal[i] * k_[at]));
      if (!to.key) return;
      W sum = m_.dk[at] + m_.dk_end[at] + m_.diagonal[i] * m_.qk[at];
      if (n_.deltas) sum += m_.dqk[c_ * row + at];
      to.key.put(token(i) * D + j, sum);
    });
  }

  Team team_;
  LinearAttention n_;
  LinearAttentionOperands<T> x_;
  LinearAttentionMemory<W> m_;
  Index D, E, head_, first_;
  bool by_channel_;
  Index from_ = 0, c_ = 0;  // the chunk's first token, and how many they are
  const W *qk_from_start_ = nullptr, *k_to_end_ = nullptr;
  W* k_ = nullptr;
};

}  // namespace tapeformer::kernels
