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
  /// Head `head` among those of all sequences; no other one uses `memory`.
  TAPEFORMER_TEAM LinearAttentionHead(const LinearAttention& sizes, const LinearAttentionOperands<T>& x,
                                      Index head, const LinearAttentionMemory<Team>& memory)
      : n_(sizes),
        x_(x),
        m_(memory),
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
                 [&](auto i, auto j) { y[place(i, j, E)] = static_cast<T>(m_.out[i * m_.row_E + j]); });
      advance(m_.state, m_.state);
    }
    if (last != nullptr) store_state(m_.state, last + head_ * D * E);
  }

  TAPEFORMER_TEAM void backward(const W* kept, const T* dy, const W* dlast,
                                const LinearAttentionGradients<T>& to) {
    load_state(dlast != nullptr ? dlast + head_ * D * E : nullptr, m_.dstate);
    const Index segment = n_.segment();
    for (Index part = n_.segments() - 1; part >= 0; --part) {
      const Index begin = part * segment, end = min(n_.length, begin + segment);
      load_state(kept + (head_ * n_.segments() + part) * D * E, state_of(0));
      const Index chunks = (end - begin + C - 1) / C;
      // Forward to the state before the last chunk, and back.
      for (Index step = 0; step < 2 * chunks - 1; ++step) {
        const bool is_back = step >= chunks - 1, is_last = step == chunks - 1;
        const Index chunk = is_back ? 2 * chunks - 2 - step : step, from = begin + chunk * C;
        if constexpr (Team::kStatesAreFar) {
          W* const kept_state = m_.states + chunk * D * m_.row_E;
          if (!is_last)
            team_.copy(D * m_.row_E, is_back ? kept_state : m_.state, is_back ? m_.state : kept_state);
        }
        ahead_ = is_back ? -C : C;
        load(from, min(C, end - from), is_back);
        find_values(state_of(chunk), false);
        if (is_back)
          chunk_backward(state_of(chunk), dy, to);
        else
          advance(state_of(chunk), state_of(chunk + 1));
      }
    }
    if (!to.state) return;
    team_.grid(D, E,
               [&](auto i, auto j) { to.state.put((head_ * D + i) * E + j, m_.dstate[i * m_.row_E + j]); });
  }

 private:
  static TAPEFORMER_TEAM Index min(Index a, Index b) { return a < b ? a : b; }
  /// The place of the chunk's token i among the heads of all tokens, and that of element j of i's `width`.
  TAPEFORMER_TEAM Index token(Index i) const { return first_ + (from_ + i) * n_.heads; }
  template <class I>
  TAPEFORMER_TEAM Index place(I i, I j, Index width) const {
    return token(0) * width + (i * static_cast<I>(n_.heads * width) + j);
  }
  /// The first row of queries and keys, or without `queries` the first row of keys.
  TAPEFORMER_TEAM Index first_row(bool queries) const { return queries ? 0 : c_; }
  TAPEFORMER_TEAM Index end_row() const { return n_.deltas ? 2 * c_ : c_; }

  /// The state before a chunk of a segment, where products find it.
  TAPEFORMER_TEAM W* state_of(Index chunk) {
    if constexpr (Team::kStatesAreFar) return m_.state;
    return m_.states + chunk * D * m_.row_E;
  }

  /// Loads a state, or zeros if `from` is nullptr.
  TAPEFORMER_TEAM void load_state(const W* from, W* to) {
    const auto put = [&](auto i, auto j, W x) { to[i * m_.row_E + j] = x; };
    if (from != nullptr)
      team_.load(
          D, E, [&](auto i, auto j) { return from[i * E + j]; }, put);
    else
      team_.grid(D, E, [&](auto i, auto j) { put(i, j, W(0)); });
  }
  TAPEFORMER_TEAM void store_state(const W* from, W* to) {
    team_.grid(D, E, [&](auto i, auto j) { to[i * E + j] = from[i * m_.row_E + j]; });
  }

  /// Prefetches the next chunk's rows, which are needed a few calls later.
  template <class X>
  TAPEFORMER_TEAM void prefetch_rows(const X* from, Index width) {
    const Index first = from_ + ahead_, size = static_cast<Index>(sizeof(X));
    if (first < 0 || first >= n_.length) return;
    team_.prefetch(min(C, n_.length - first), width * size, from + place(ahead_, Index{0}, width),
                   n_.heads * width * size);
  }
  template <class X, class Put>
  TAPEFORMER_TEAM void load_rows(const X* from, Index width, const Put& put) {
    prefetch_rows(from, width);
    team_.load(
        c_, width, [&](auto i, auto j) { return static_cast<W>(from[place(i, j, width)]); }, put);
  }

  /// Loads the next `count` tokens, and computes what follows from their keys, decays and perhaps queries.
  TAPEFORMER_TEAM void load(Index from, Index count, bool queries) {
    from_ = from, c_ = count;
    k_ = m_.qk + c_ * m_.row_D;
    const W scale = static_cast<W>(n_.scale);
    const auto put_key = [&](auto i, auto j, W key) { k_[i * m_.row_D + j] = key; };
    if (queries) {
      prefetch_rows(x_.query, D);
      prefetch_rows(x_.key, D);
      struct Both {
        W query, key;
      };
      team_.load(
          c_, D,
          [&](auto i, auto j) {
            const Index at = place(i, j, D);
            return Both{static_cast<W>(x_.query[at]), static_cast<W>(x_.key[at])};
          },
          [&](auto i, auto j, const Both& x) {
            m_.qk[i * m_.row_D + j] = scale * x.query;
            put_key(i, j, x.key);
          });
    } else {
      load_rows(x_.key, D, put_key);
    }
    if (n_.deltas) team_.grid(1, c_, [&](auto, auto i) { m_.beta[i] = static_cast<W>(x_.beta[token(i)]); });
    qk_from_start_ = m_.qk, k_to_end_ = k_;
    if (n_.decays > 0) {
      load_decays();
      qk_from_start_ = m_.qk_from_start, k_to_end_ = m_.k_to_end;
      team_.grid(c_, D, [&](auto i, auto j) {
        const Index at = i * m_.row_D + j;
        const W decay = m_.from_start[at];
        if (queries) m_.qk_from_start[at] = decay * m_.qk[at];
        m_.qk_from_start[c_ * m_.row_D + at] = decay * k_[at];
        m_.k_to_end[at] = m_.to_end[at] * k_[at];
      });
    }
    find_products(queries);
  }

  /// Computes from_start[t] = f_t, to_end[t] = b_t, and where all channels share their decay between = d_tj.
  TAPEFORMER_TEAM void load_decays() {
    const Index row = m_.row_D, last = c_ - 1;
    prefetch_rows(x_.log_decay, n_.decays);
    team_.exponentials(c_, n_.decays, x_.log_decay + token(0) * n_.decays, n_.heads * n_.decays, m_.decay,
                       row);
    const auto multiply = [](W a, W b) { return a * b; };
    if (!by_channel_) {
      team_.grid(c_, D - 1, [&](auto i, auto j) { m_.decay[i * row + j + 1] = m_.decay[i * row]; });
      team_.scan(
          c_, c_, m_.between, m_.row_C, [&](auto i, auto j) { return i > j ? m_.decay[i * row] : W(1); },
          multiply);
    }
    team_.scan(
        c_, D, m_.from_start, row, [&](auto i, auto j) { return m_.decay[i * row + j]; }, multiply);
    team_.scan(
        c_, D, m_.to_end + last * row, -row,
        [&](auto i, auto j) { return i > 0 ? m_.decay[(c_ - i) * row + j] : W(1); }, multiply);
  }

  /// Computes P in the first rows of pa, and -A in the rows after them.
  TAPEFORMER_TEAM void find_products(bool queries) {
    const Index first = first_row(queries), rows = end_row() - first, row = m_.row_C;
    if (rows <= 0) return;
    if (by_channel_)
      team_.pairs_by_channel(m_, first, rows, c_, D);
    else
      team_.product_transposed(rows, c_, D, m_.qk + first * m_.row_D, m_.row_D, k_, m_.row_D, m_.k_columns,
                               row, m_.pa + first * row, row);
    keep_visible(first, m_.pa, W(-1));
  }

  /// Multiplies pairs of tokens by shared decays, and rows of keys by `sign`. Pairs get zero where the column
  /// is after the row, and in rows of keys also where it is the row.
  TAPEFORMER_TEAM void keep_visible(Index first, W* pairs, W sign) {
    const bool decays = n_.decays > 0 && !by_channel_;
    team_.grid(end_row() - first, c_, [&](auto i, auto j) {
      const bool is_query = first + i < c_;
      const Index t = is_query ? first + i : first + i - c_;
      W& pair = pairs[(first + i) * m_.row_C + j];
      const W factor = decays && j <= t ? m_.between[t * m_.row_C + j] : W(1);
      pair = j < t || (j == t && is_query) ? (is_query ? pair : sign * pair) * factor : W(0);
    });
  }

  /// Computes U, N, and with `queries` (f * Q) S in out.
  TAPEFORMER_TEAM void find_values(const W* state, bool queries) {
    const Index first = first_row(queries), rows = end_row() - first, row = m_.row_E;
    if (rows > 0) {
      team_.product(rows, E, D, qk_from_start_ + first * m_.row_D, m_.row_D, 1, state, row,
                    m_.out + first * row, row, false);
    }
    W* const to = n_.deltas ? m_.error : m_.u;
    load_rows(x_.value, E, [&](auto i, auto j, W value) {
      to[i * row + j] = n_.deltas ? value - m_.out[(c_ + i) * row + j] : value;
    });
    if (n_.deltas)
      team_.substitute(false, c_, E, m_.pa + c_ * m_.row_C, m_.row_C, m_.beta, m_.error, m_.u, row);
  }

  /// Computes the state after the chunk.
  TAPEFORMER_TEAM void advance(const W* before, W* after) {
    team_.add_to_decayed(D, E, c_, last_decays(), before, k_to_end_, m_.row_D, m_.u, after, m_.row_E);
  }
  /// f_C, or nullptr.
  TAPEFORMER_TEAM const W* last_decays() {
    return n_.decays > 0 ? m_.from_start + (c_ - 1) * m_.row_D : nullptr;
  }

  /// Turns dstate, the gradient of the state after the chunk, into that of `state`, the one before it; to be
  /// called after load() and find_values().
  TAPEFORMER_TEAM void chunk_backward(const W* state, const T* dy, const LinearAttentionGradients<T>& to) {
    const Index row_D = m_.row_D, row_E = m_.row_E, row_C = m_.row_C, rows = end_row();
    load_rows(dy, E, [&](auto i, auto j, W x) { m_.dout[i * row_E + j] = x; });
    team_.product(c_, E, c_, m_.pa, 1, row_C, m_.dout, row_E, m_.du, row_E, false);
    team_.product(c_, E, D, k_to_end_, row_D, 1, m_.dstate, row_E, m_.du, row_E, true);
    if (n_.deltas) correct_values(to);
    if (to.value) {
      team_.grid(c_, E, [&](auto i, auto j) {
        const W value = m_.du[i * row_E + j];
        to.value.put(place(i, j, E), n_.deltas ? m_.beta[i] * value : value);
      });
    }
    // dP and dA. The diagonal is kept apart: its decay is 1, and gets no gradient.
    team_.product_transposed(rows, c_, E, m_.dout, row_E, m_.u, row_E, m_.u_columns, row_C, m_.dpa, row_C);
    keep_visible(0, m_.dpa, W(1));
    team_.grid(1, c_, [&](auto, auto i) {
      m_.diagonal[i] = m_.dpa[i * row_C + i];
      m_.dpa[i * row_C + i] = W(0);
    });
    // The part from the states before and after.
    team_.product_transposed(rows, D, E, m_.dout, row_E, state, row_E, m_.state_columns, row_D, m_.dqk,
                             row_D);
    team_.product_transposed(c_, D, E, m_.u, row_E, m_.dstate, row_E, m_.state_columns, row_D, m_.dk_end,
                             row_D);
    if (n_.decays > 0) {
      team_.grid(c_, D, [&](auto i, auto j) {
        const Index at = i * row_D + j;
        const W decay = m_.from_start[at];
        m_.dqk[at] *= decay;
        if (n_.deltas) m_.dqk[c_ * row_D + at] *= decay;
        m_.dk_end[at] *= m_.to_end[at];
      });
      end_decay(state);
    }
    if (by_channel_)
      team_.share_by_channel(m_, rows, c_, D);
    else
      share();
    store_keys(to);
    team_.add_to_decayed(D, E, rows, last_decays(), m_.dstate, qk_from_start_, row_D, m_.dout, m_.dstate,
                         row_E);
  }

  /// Computes H in place of dU, and -W in the rows of keys of dout.
  TAPEFORMER_TEAM void correct_values(const LinearAttentionGradients<T>& to) {
    const Index row = m_.row_E;
    team_.substitute(true, c_, E, m_.pa + c_ * m_.row_C, m_.row_C, m_.beta, m_.du, m_.dout + c_ * row, row);
    if (!to.beta) return;
    team_.sums(
        c_, E, [&](auto i, auto j) { return m_.error[i * row + j] * m_.du[i * row + j]; },
        [&](auto i, W sum) { to.beta.put(token(i), sum); });
  }

  /// Computes in dlog what the state after the chunk adds: f_C S dS' + the sum before t of k_j b_j dS' u_j.
  TAPEFORMER_TEAM void end_decay(const W* before) {
    const Index row = m_.row_D;
    team_.sums(
        D, E, [&](auto i, auto j) { return before[i * m_.row_E + j] * m_.dstate[i * m_.row_E + j]; },
        [&](auto i, W sum) { m_.dlog[i] = m_.from_start[(c_ - 1) * row + i] * sum; });
    team_.scan(
        c_, D, m_.dlog, row,
        [&](auto i, auto j) {
          return i > 0 ? k_[(i - 1) * row + j] * m_.dk_end[(i - 1) * row + j] : m_.dlog[j];
        },
        [](W a, W b) { return a + b; });
  }

  /// Computes the sums over pairs of tokens, where all channels share their decays.
  TAPEFORMER_TEAM void share() {
    const Index rows = end_row();
    team_.product(rows, D, c_, m_.dpa, m_.row_C, 1, k_, m_.row_D, m_.dqk, m_.row_D, true);
    team_.product(c_, D, rows, m_.dpa, 1, m_.row_C, m_.qk, m_.row_D, m_.dk, m_.row_D, false);
  }

  /// Writes the gradients of queries, keys and decays.
  TAPEFORMER_TEAM void store_keys(const LinearAttentionGradients<T>& to) {
    const Index row = m_.row_D;
    if (to.log_decay && n_.decays > 0) {
      team_.scan(
          c_, D, m_.ends + (c_ - 1) * row, -row,
          [&](auto i, auto j) {
            const Index at = (c_ - 1 - i) * row + j;
            const W sum = m_.qk[at] * m_.dqk[at] - k_[at] * m_.dk[at];
            return n_.deltas ? sum + k_[at] * m_.dqk[c_ * row + at] : sum;
          },
          [](W a, W b) { return a + b; });
      const auto dlog = [&](auto i, auto j) { return m_.dlog[i * row + j] + m_.ends[i * row + j]; };
      if (by_channel_)
        team_.grid(c_, D, [&](auto i, auto j) { to.log_decay.put(place(i, j, D), dlog(i, j)); });
      else
        team_.sums(c_, D, dlog, [&](auto i, W sum) { to.log_decay.put(token(i), sum); });
    }
    const W scale = static_cast<W>(n_.scale);
    team_.grid(c_, D, [&](auto i, auto j) {
      const Index at = i * row + j;
      if (to.query) to.query.put(place(i, j, D), scale * (m_.dqk[at] + m_.diagonal[i] * k_[at]));
      if (!to.key) return;
      W sum = m_.dk[at] + m_.dk_end[at] + m_.diagonal[i] * m_.qk[at];
      if (n_.deltas) sum += m_.dqk[c_ * row + at];
      to.key.put(place(i, j, D), sum);
    });
  }

  Team team_;
  LinearAttention n_;
  LinearAttentionOperands<T> x_;
  LinearAttentionMemory<Team> m_;
  Index D, E, head_, first_;
  bool by_channel_;
  Index from_ = 0, c_ = 0, ahead_ = C;  // the chunk's first token, its tokens, the offset of the next chunk
  const W *qk_from_start_ = nullptr, *k_to_end_ = nullptr;
  W* k_ = nullptr;
};

}  // namespace tapeformer::kernels
