#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/register_tiles.h>
#include <tapeformer/autograd/kernels/linear_attention_memory.h>

// The team of LinearAttentionHead whose members are the threads of a block: each call but prefetch() ends
// with a barrier.

namespace tapeformer::kernels {

/// A block of kBlock threads, whose working memory may be shared memory.
template <class W, bool kShared>
struct LinearAttentionBlock {
  static constexpr bool kTransposes = false, kStatesAreFar = true;
  static constexpr int C = static_cast<int>(kLinearAttentionChunk), kWarps = kBlock / kWarp;

  using Number = W;
  /// Numbers of shared memory from `first` on, or from ~first on of what an address there points to: as part
  /// of a kernel's argument it takes no registers.
  struct Part {
    int first;
    __device__ operator W*() const {
      if constexpr (kShared) return dynamic_shared<W>() + first;
      return first >= 0 ? dynamic_shared<W>() + 4 + first : *dynamic_shared<W*>() + ~first;
    }
  };
  static Part part(W*, bool is_near, Index first) {
    return {is_near ? static_cast<int>(first) : ~static_cast<int>(first)};
  }

  /// Whole packs, an odd number of them: packs of a column are in different banks.
  TAPEFORMER_HOST_DEVICE static Index leading(Index columns) { return (columns + 3) / 4 / 2 * 8 + 4; }

  /// A warp for each row, a lane for each column.
  template <class F>
  __device__ void grid(int rows, int columns, const F& f) const {
#pragma unroll 1
    for (int i = own_warp(); i < rows; i += kWarps) {
#pragma unroll 1
      for (int j = own_lane(); j < columns; j += kWarp) f(i, j);
    }
    __syncthreads();
  }
  /// Calls put(i, j, get(i, j)); four of a thread's loads are under way at once.
  template <class Get, class Put>
  __device__ void load(int rows, int columns, const Get& get, const Put& put) const {
#pragma unroll 1
    for (int i = own_warp(); i < rows; i += 2 * kWarps) {
#pragma unroll 1
      for (int j = own_lane(); j < columns; j += 2 * kWarp) {
        decltype(get(i, j)) x[2][2];
#pragma unroll
        for (int u = 0; u < 4; ++u)
          x[u / 2][u % 2] = get(min(i + u / 2 * kWarps, rows - 1), min(j + u % 2 * kWarp, columns - 1));
#pragma unroll
        for (int u = 0; u < 4; ++u) {
          const int row = i + u / 2 * kWarps, column = j + u % 2 * kWarp;
          if (row < rows && column < columns) put(row, column, x[u / 2][u % 2]);
        }
      }
    }
    __syncthreads();
  }
  /// `count` numbers, a multiple of four.
  __device__ void copy(int count, const W* from, W* to) const {
    constexpr int kAtOnce = 4;
#pragma unroll 1
    for (int first = 4 * static_cast<int>(threadIdx.x); first < count; first += 4 * kAtOnce * kBlock) {
      Pack<W, 4> x[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) x[u] = load_pack<4>(from + min(first + 4 * u * kBlock, count - 4));
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        if (first + 4 * u * kBlock < count) store_pack(to + first + 4 * u * kBlock, x[u]);
    }
    __syncthreads();
  }
  __device__ void exponentials(int rows, int columns, const W* x, int x_row, W* y, int y_row) const {
    load(
        rows, columns, [&](int i, int j) { return x[i * x_row + j]; },
        [&](int i, int j, W value) { y[i * y_row + j] = exp(value); });
  }
  /// A thread for each column, which first reads the values of all rows.
  template <class Get, class Combine>
  __device__ void scan(int rows, int columns, W* out, int step, const Get& get,
                       const Combine& combine) const {
#pragma unroll 1
    for (int j = static_cast<int>(threadIdx.x); j < columns; j += kBlock) {
      W values[C];
#pragma unroll
      for (int i = 0; i < C; ++i)
        if (i < rows) values[i] = get(i, j);
#pragma unroll
      for (int i = 0; i < C; ++i) {
        if (i >= rows) continue;
        if (i > 0) values[i] = combine(values[i - 1], values[i]);
        out[i * step + j] = values[i];
      }
    }
    __syncthreads();
  }
  /// A warp for each row.
  template <class F, class Put>
  __device__ void sums(int rows, int columns, const F& f, const Put& put) const {
#pragma unroll 1
    for (int i = own_warp(); i < rows; i += kWarps) {
      W sum(0);
      for (int j = own_lane(); j < columns; j += kWarp) sum += f(i, j);
      sum = warp_sum(sum);
      if (own_lane() == 0) put(i, sum);
    }
    __syncthreads();
  }

  __device__ void product(int rows, int columns, int depth, const W* a, int a_row, int a_step, const W* b,
                          int b_row, W* c, int c_row, bool add) const {
    const OldSums old = add ? OldSums::added : OldSums::replaced;
    if (a_step == 1)
      tiles<false, false>(rows, columns, depth, operand(a), a_row, operand(b), b_row, operand(c), c_row, old,
                          operand(c));
    else
      tiles<true, false>(rows, columns, depth, operand(a), a_step, operand(b), b_row, operand(c), c_row, old,
                         operand(c));
  }
  __device__ void product_transposed(int rows, int columns, int depth, const W* a, int a_row, const W* b,
                                     int b_row, W*, Index, W* c, int c_row) const {
    tiles<false, true>(rows, columns, depth, operand(a), a_row, operand(b), b_row, operand(c), c_row,
                       OldSums::replaced, operand(c));
  }
  /// `before` is c.
  __device__ void add_to_decayed(int rows, int columns, int depth, const W* decays, const W*, const W* a,
                                 int a_step, const W* b, W* c, int row) const {
    tiles<true, false>(rows, columns, depth, operand(a), a_step, operand(b), row, operand(c), row,
                       decays != nullptr ? OldSums::decayed : OldSums::added,
                       operand(decays != nullptr ? decays : c));
  }
  __device__ void prefetch(int rows, int bytes, const void* from, Index row_bytes) const {
    constexpr int kLine = 128;
    for (int i = static_cast<int>(threadIdx.x); i < rows; i += kBlock) {
      for (int at = 0; at < bytes; at += kLine)
        prefetch_line(static_cast<const char*>(from) + i * row_bytes + at);
    }
  }

  __device__ void substitute(bool down, int count, int columns, const W* a, int a_row, const W* factors,
                             W* rows, W* results, int row) const {
    const int last = down ? count - 1 : 0;
    substitute_columns(count, columns, operand(a + last * (a_row + 1)), down ? -a_row : 1, down ? -1 : a_row,
                       operand(factors + last), down ? -1 : 1, down ? W(-1) : W(1),
                       operand(rows + last * row), operand(results + last * row), down ? -row : row);
  }

  /// Half a warp for each key, whose lanes divide the channels: the key decays as the query moves on. Each
  /// lane then gets the sum of all for one query, by exchanging halves of what it still has.
  __device__ void pairs_by_channel(const LinearAttentionMemory<LinearAttentionBlock>& m, int first, int rows,
                                   int c, int width) const {
    static_assert(kBlock == C * C && kWarp == 2 * C, "half a warp for each token");
    const int key = static_cast<int>(threadIdx.x) / C, lane = static_cast<int>(threadIdx.x) % C;
    const int row = static_cast<int>(m.row_D);
    const W *const decay = m.decay, *const qk = m.qk;
    W sums[2][C] = {};
#pragma unroll 1
    for (int d = 4 * lane; d < width && key < c; d += 4 * C) {
      Pack<W, 4> own = load_pack<4>(qk + (c + key) * row + d);
#pragma unroll
      for (int t = 0; t < C; ++t) {
        if (t < key || t >= c) continue;
        const Pack<W, 4> a = load_pack<4>(decay + t * row + d), q = load_pack<4>(qk + t * row + d),
                         k = load_pack<4>(qk + (c + t) * row + d);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          if (t > key) own.of[n] *= a.of[n];
          sums[0][t] += q.of[n] * own.of[n];
          sums[1][t] += k.of[n] * own.of[n];
        }
      }
    }
#pragma unroll
    for (int kind = 0; kind < 2; ++kind) {
      W(&own)[C] = sums[kind];
#pragma unroll
      for (int half = C / 2; half > 0; half /= 2) {
        const bool upper = (lane & half) != 0;
#pragma unroll
        for (int i = 0; i < half; ++i) {
          const W other = __shfl_xor_sync(kAllLanes, upper ? own[i] : own[i + half], half);
          own[i] = (upper ? own[i + half] : own[i]) + other;
        }
      }
      const int place = kind * c + lane;
      if (key < c && lane < c && place >= first && place < first + rows) m.pa[place * m.row_C + key] = own[0];
    }
    __syncthreads();
  }

  /// A thread for each token and four channels: back through the keys before it, which have decayed since,
  /// and on through the queries after it, until which it decays.
  __device__ void share_by_channel(const LinearAttentionMemory<LinearAttentionBlock>& m, int rows, int c,
                                   int width) const {
    const int row = static_cast<int>(m.row_D), row_C = static_cast<int>(m.row_C);
    const int across = (width + 3) / 4;
    const bool deltas = rows > c;
    const W *const decay = m.decay, *const qk = m.qk, *const keys = qk + c * row, *const dp = m.dpa,
                   *const da = dp + c * row_C;
    W *const dq = m.dqk, *const dk = m.dk;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < c * across; i += kBlock) {
      const int t = i / across, at = i % across * 4, own = t * row + at;
      Pack<W, 4> decays, of_query = load_pack<4>(dq + own), of_key{};
      if (deltas) of_key = load_pack<4>(dq + c * row + own);
#pragma unroll
      for (int n = 0; n < 4; ++n) decays.of[n] = W(1);
#pragma unroll 2
      for (int j = t - 1; j >= 0; --j) {
        const Pack<W, 4> a = load_pack<4>(decay + (j + 1) * row + at), k = load_pack<4>(keys + j * row + at);
        const W p = dp[t * row_C + j], other = deltas ? da[t * row_C + j] : W(0);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          decays.of[n] *= a.of[n];
          const W decayed = decays.of[n] * k.of[n];
          of_query.of[n] += p * decayed;
          of_key.of[n] += other * decayed;
        }
      }
      store_pack(dq + own, of_query);
      if (deltas) store_pack(dq + c * row + own, of_key);
      Pack<W, 4> sum{};
#pragma unroll
      for (int n = 0; n < 4; ++n) decays.of[n] = W(1);
#pragma unroll 2
      for (int later = t + 1; later < c; ++later) {
        const Pack<W, 4> a = load_pack<4>(decay + later * row + at), q = load_pack<4>(qk + later * row + at),
                         k = load_pack<4>(keys + later * row + at);
        const W p = dp[later * row_C + t], other = deltas ? da[later * row_C + t] : W(0);
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          decays.of[n] *= a.of[n];
          sum.of[n] += decays.of[n] * (p * q.of[n] + other * k.of[n]);
        }
      }
      store_pack(dk + own, sum);
    }
    __syncthreads();
  }

 private:
  /// An operand: its place in shared memory, which needs no generic loads, if all of them are there.
  using Operand = std::conditional_t<kShared, Part, W*>;
  __device__ static Operand operand(const W* at) {
    if constexpr (kShared)
      return {static_cast<int>(at - dynamic_shared<W>())};
    else
      return const_cast<W*>(at);
  }

  // The rest is not inlined: a kernel has a dozen products, and its instructions should fit into their cache.

  /// A thread for each column, with what is left of its rows in registers. The n-th row is `row` numbers
  /// after the one before it, and a[n * by + next * next_by] is its factor in the next-th.
  __attribute__((noinline)) __device__ static void substitute_columns(int count, int columns, Operand a,
                                                                      int by, int next_by, Operand factors,
                                                                      int step, W sign, Operand rows,
                                                                      Operand results, int row) {
    const W *const of_a = a, *const factor = factors;
    W *const of_rows = rows, *const of_results = results;
#pragma unroll 1
    for (int j = static_cast<int>(threadIdx.x); j < columns; j += kBlock) {
      W own[C], result[C];
#pragma unroll
      for (int n = 0; n < C; ++n)
        if (n < count) own[n] = of_rows[n * row + j];
#pragma unroll
      for (int n = 0; n < C; ++n) {
        if (n >= count) continue;
        result[n] = factor[n * step] * own[n];  // added below, as `a` has the other sign
#pragma unroll
        for (int next = n + 1; next < C; ++next)  // in vain beyond the last
          own[next] += of_a[n * by + next * next_by] * result[n];
      }
#pragma unroll
      for (int n = 0; n < C; ++n) {
        if (n >= count) continue;
        of_rows[n * row + j] = own[n];
        of_results[n * row + j] = sign * result[n];
      }
    }
    __syncthreads();
  }

  template <bool kDown, bool kTransposed>
  __attribute__((noinline)) __device__ static void tiles(int rows, int columns, int depth, Operand a,
                                                         int a_row, Operand b, int b_row, Operand c,
                                                         int c_row, OldSums old, Operand decays) {
    const int of_row = (columns + 3) / 4;
    const auto run = [&](auto R) {
      product_tiles<decltype(R)::value, kDown, kTransposed, W>(rows, columns, depth, a, a_row, b, b_row, c,
                                                               c_row, old, decays);
    };
    if (rows * of_row >= 4 * kBlock)
      run(std::integral_constant<int, 4>{});
    else if (rows * of_row >= 2 * kBlock)
      run(std::integral_constant<int, 2>{});
    else
      run(std::integral_constant<int, 1>{});
    __syncthreads();
  }
};

}  // namespace tapeformer::kernels
